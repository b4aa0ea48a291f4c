"""What is known of the partitions that other consumers read.

Facts about an epoch never change, they only become more: lengths of splits, a lower bound
of a partition's rows, its end. They may be late or missing at any time; what depends on
them waits (with a deadline) or assumes less.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from distributed_input.api.proto import dispatcher_pb2


@dataclass
class PartitionKnowledge:
    """One partition in one epoch.

    Attributes:
        borders: ordinal -> rows of the partition before that split.
        rows_seen: the partition has at least these rows.
        ended: `rows_seen` is all of them.
        remade: rows made again, over all times: whoever makes some is not idle.
    """

    borders: dict[int, int] = field(default_factory=lambda: {0: 0})
    rows_seen: int = 0
    ended: bool = False
    remade: int = 0

    def learn(self, fact: dispatcher_pb2.PartitionFact) -> None:
        """Merge one consumer's word."""
        self.remade = max(self.remade, fact.remade)
        rows = fact.first_rows
        self.borders[fact.first_ordinal] = rows
        for i, length in enumerate(fact.split_rows):
            rows += length
            self.borders[fact.first_ordinal + i + 1] = rows
        if fact.ended:
            self.ended, self.rows_seen = True, fact.rows_seen
        elif not self.ended:
            self.rows_seen = max(self.rows_seen, fact.rows_seen, rows)

    def anchor(self, rows: int) -> tuple[int, int]:
        """(ordinal, rows before it) of the last known split border at or before `rows`."""
        return max((o, before) for o, before in self.borders.items() if before <= rows)


class Facts:
    """Thread-safe knowledge of the current and the next epoch."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], PartitionKnowledge] = {}
        self.changed = threading.Condition()

    def learn(self, facts: Iterable[dispatcher_pb2.PartitionFact]) -> None:
        """Merge facts as the dispatcher passed them on."""
        with self.changed:
            for fact in facts:
                key = (fact.epoch, fact.partition)
                self._known.setdefault(key, PartitionKnowledge()).learn(fact)
            self.changed.notify_all()

    def of(self, epoch: int, partition: int) -> PartitionKnowledge:
        """What is known of a partition; a snapshot that the caller may keep."""
        with self.changed:
            known = self._known.get((epoch, partition))
            if known is None:
                return PartitionKnowledge()
            return replace(known, borders=dict(known.borders))

    def clear(self) -> None:
        """Drop everything: another job follows."""
        with self.changed:
            self._known.clear()

    def forget_before(self, epoch: int) -> None:
        """Drop what no run needs any more."""
        with self.changed:
            for key in [key for key in self._known if key[0] < epoch]:
                del self._known[key]
