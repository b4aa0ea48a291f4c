"""What consumers report about the partitions of an epoch, merged. Pure.

A fact about an epoch never becomes wrong, and facts only grow: the length of a split, a lower bound
of a partition's rows, the end of a partition. So a merge is a union, and neither the order nor
repetition of reports matters. A report that contradicts the known facts is rejected as a whole: the
dataset is not a function of (seed, epoch, split), or two runs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType

from distributed_input.api.proto.dispatcher_pb2 import PartitionFact

_START: Mapping[int, int] = MappingProxyType({0: 0})


@dataclass(frozen=True)
class PartitionKnowledge:
    """All facts about one partition in one epoch.

    Attributes:
        borders: rows of the partition before a split, by the index of the split.
        rows_seen: rows that the partition has at least.
        ended: whether `rows_seen` is all of them.
        replayed: rows that workers have replayed. While it grows, the reader is not idle.
    """

    borders: Mapping[int, int] = field(default_factory=lambda: _START)
    rows_seen: int = 0
    ended: bool = False
    replayed: int = 0

    def merge(self, fact: PartitionFact) -> PartitionKnowledge:
        """Return what is known with a report.

        Raises:
            ValueError: the report contradicts what is known. The message has the difference.
        """
        reported = {fact.first_ordinal: fact.first_rows}
        rows = fact.first_rows
        for ordinal, length in enumerate(fact.split_rows, fact.first_ordinal + 1):
            rows += length
            reported[ordinal] = rows
        is_known = fact.rows_seen <= self.rows_seen and fact.remade <= self.replayed
        if is_known and not fact.ended and reported.items() <= self.borders.items():
            return self  # consumers report all facts again and again
        borders = {**self.borders, **reported}
        rows_seen = max(self.rows_seen, fact.rows_seen, *borders.values())
        if any(self.borders.get(ordinal, rows) != rows for ordinal, rows in reported.items()):
            raise ValueError("a split has another length")
        if any(borders[a] > borders[b] for a, b in pairwise(sorted(borders))):
            raise ValueError("splits start in another order")
        if any(one.ended and one.rows_seen != rows_seen for one in (self, fact)):
            raise ValueError("it has another number of rows")
        replayed = max(self.replayed, fact.remade)
        return PartitionKnowledge(borders, rows_seen, self.ended or fact.ended, replayed)

    def last_border(self, rows: int) -> tuple[int, int]:
        """Return (index of a split, rows before it) of the last known border up to `rows`."""
        return max((o, before) for o, before in self.borders.items() if before <= rows)

    def messages(self, epoch: int, partition: int) -> list[PartitionFact]:
        """Return the facts as messages: one for each range of consecutive splits."""
        ranges: list[list[int]] = []
        for ordinal in sorted(self.borders):
            if not ranges or ordinal != ranges[-1][-1] + 1:
                ranges.append([])
            ranges[-1].append(ordinal)
        return [
            PartitionFact(
                partition=partition,
                epoch=epoch,
                first_ordinal=ordinals[0],
                first_rows=self.borders[ordinals[0]],
                split_rows=[self.borders[b] - self.borders[a] for a, b in pairwise(ordinals)],
                rows_seen=self.rows_seen,
                ended=self.ended,
                remade=self.replayed,
            )
            for ordinals in ranges
        ]


class FactStore:
    """The facts about the partitions of one run, by epoch."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], PartitionKnowledge] = {}  # by epoch and partition
        self._messages: dict[tuple[int, int], list[PartitionFact]] = {}  # as far as requested

    def merge(self, facts: Iterable[PartitionFact]) -> list[str]:
        """Add facts. Return descriptions of those that contradict others."""
        conflicts = []
        for fact in facts:
            key = fact.epoch, fact.partition
            known = self.of(*key)
            try:
                found = known.merge(fact)
            except ValueError as problem:
                conflicts.append(
                    f"epoch {fact.epoch}, partition {fact.partition}: {problem} than an earlier "
                    "report stated: the dataset does not produce the same rows each time. Make it "
                    "a function of its files, its arguments and context.seed, and do not change "
                    "files during a run"
                )
                continue
            if found != known or key not in self._known:
                self._known[key] = found
                self._messages.pop(key, None)
        return conflicts

    def of(self, epoch: int, partition: int) -> PartitionKnowledge:
        """Return the facts about a partition."""
        return self._known.get((epoch, partition)) or PartitionKnowledge()

    def messages(self, first: int, selected: Callable[[int], bool]) -> list[PartitionFact]:
        """Return the facts of epochs from `first` on, of the partitions that are `selected`."""
        found = []
        for epoch, partition in sorted(self._known):
            if epoch >= first and selected(partition):
                key = epoch, partition
                if key not in self._messages:
                    self._messages[key] = self._known[key].messages(*key)
                found += self._messages[key]
        return found

    def trim(self, most: int) -> None:
        """Remove all but the last `most` borders of each partition, once it has twice as many."""
        for key, known in self._known.items():
            if len(known.borders) > 2 * most:
                last = sorted(known.borders)[-most:]
                borders = {0: 0, **{ordinal: known.borders[ordinal] for ordinal in last}}
                self._known[key] = replace(known, borders=borders)
                self._messages.pop(key, None)

    def forget(self, before: int, most_epochs: int = 0) -> None:
        """Remove epochs before `before`, and all but the newest `most_epochs` unless that is 0."""
        epochs = sorted({epoch for epoch, _ in self._known if epoch >= before})
        kept = set(epochs[-most_epochs:])
        for key in [key for key in self._known if key[0] not in kept]:
            del self._known[key]
            self._messages.pop(key, None)
