"""Facts about partitions, as the dispatcher exchanges them between consumers.

A fact about an epoch never becomes wrong: the length of a split, a lower bound of a partition's
rows, the end of a partition. Facts may be late or missing at any time. Code that needs one waits
for it with a deadline, or assumes less.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from distributed_input.api.proto import dispatcher_pb2


@dataclass
class PartitionKnowledge:
    """All facts about one partition in one epoch.

    Attributes:
        borders: rows of the partition before a split, by the index of the split.
        rows_seen: rows that the partition has at least.
        ended: whether `rows_seen` is all of them.
        replayed: rows that workers have replayed. While it grows, the reader is not idle.
    """

    borders: dict[int, int] = field(default_factory=lambda: {0: 0})
    rows_seen: int = 0
    ended: bool = False
    replayed: int = 0

    def merge(self, fact: dispatcher_pb2.PartitionFact) -> None:
        """Add the facts that one consumer has reported."""
        self.replayed = max(self.replayed, fact.remade)
        rows = fact.first_rows
        self.borders[fact.first_ordinal] = rows
        for i, length in enumerate(fact.split_rows):
            rows += length
            self.borders[fact.first_ordinal + i + 1] = rows
        if fact.ended:
            self.ended, self.rows_seen = True, fact.rows_seen
        elif not self.ended:
            self.rows_seen = max(self.rows_seen, fact.rows_seen, rows)

    def last_border(self, rows: int) -> tuple[int, int]:
        """Return (index of a split, rows before it) of the last known border up to `rows`."""
        return max((o, before) for o, before in self.borders.items() if before <= rows)


class PartitionFacts:
    """The facts about the partitions of a job, by epoch. Thread-safe.

    Attributes:
        changed: notified when facts were merged.
        merged: number of times that facts were merged.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], PartitionKnowledge] = {}
        self.changed = threading.Condition()
        self.merged = 0

    def merge(self, facts: Iterable[dispatcher_pb2.PartitionFact]) -> None:
        """Add facts that the dispatcher has sent."""
        with self.changed:
            for fact in facts:
                key = (fact.epoch, fact.partition)
                self._known.setdefault(key, PartitionKnowledge()).merge(fact)
            self.merged += 1
            self.changed.notify_all()

    def of(self, epoch: int, partition: int) -> PartitionKnowledge:
        """Return a snapshot of the facts about a partition."""
        with self.changed:
            known = self._known.get((epoch, partition))
            if known is None:
                return PartitionKnowledge()
            return replace(known, borders=dict(known.borders))

    def clear(self) -> None:
        """Drop all facts, because another run follows."""
        with self.changed:
            self._known.clear()

    def forget_before(self, epoch: int) -> None:
        """Drop the facts of epochs before `epoch`."""
        with self.changed:
            for key in [key for key in self._known if key[0] < epoch]:
                del self._known[key]
