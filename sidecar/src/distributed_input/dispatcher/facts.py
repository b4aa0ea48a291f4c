"""What consumers reported of one job's partitions, merged. Pure.

FactStore about an epoch never change, they only become more, so merging is a union: in any order,
any number of times. A report that contradicts what is known is kept out as a whole and
reported: the dataset is not a function of (seed, epoch, split), or two runs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.runtime.statuses import InvalidRequestError

_MOST_ROWS = 1 << 62


@dataclass
class _Partition:
    """One partition in one epoch.

    Attributes:
        borders: split ordinal -> rows of the partition before that split.
        rows_seen: it has at least these rows.
        ended: `rows_seen` is all of them.
        remade: rows made again, over all times.
        told: the same as messages, once somebody asked.
    """

    borders: dict[int, int] = field(default_factory=lambda: {0: 0})
    rows_seen: int = 0
    ended: bool = False
    remade: int = 0
    told: list[PartitionFact] | None = None


class FactStore:
    """The facts of one job."""

    def __init__(self, partitions: int, num_splits: int, most_epochs: int) -> None:
        self._partitions = partitions
        self._num_splits = num_splits
        self._most_epochs = most_epochs
        self._known: dict[int, dict[int, _Partition]] = {}  # epoch -> partition -> facts
        self.conflicts = 0
        """Reports that contradicted what was known."""

    def learn(self, facts: Iterable[PartitionFact], first: int, last: int) -> list[str]:
        """Merge a consumer's facts of the epochs `first` to `last`; others are left out.

        Returns what contradicted, for people. Raises InvalidRequestError naming the field, and
        has then learnt nothing.
        """
        wanted = [fact for fact in facts if first <= fact.epoch <= last]
        for fact in wanted:
            self._check(fact)
        conflicts = [text for fact in wanted if (text := self._learn(fact)) is not None]
        self.conflicts += len(conflicts)
        return conflicts

    def forget(self, before: int) -> None:
        """Drop epochs before `before`, and the oldest where there are too many."""
        kept = sorted(epoch for epoch in self._known if epoch >= before)[-self._most_epochs :]
        if len(kept) < len(self._known):
            self._known = {epoch: self._known[epoch] for epoch in kept}

    def known(self, first: int, wanted: Callable[[int], bool]) -> list[PartitionFact]:
        """The facts of epochs from `first` on, of the partitions that are `wanted`.

        A partition of which only some stretches of splits are known gives a fact for each.
        """
        return [
            fact
            for epoch in sorted(self._known)
            if epoch >= first
            for partition, known in self._known[epoch].items()
            if wanted(partition)
            for fact in _told(known, partition, epoch)
        ]

    def _check(self, fact: PartitionFact) -> None:
        if fact.partition >= self._partitions:
            raise InvalidRequestError(
                f"facts.partition: {fact.partition}, but the job has {self._partitions}"
            )
        if fact.first_ordinal + len(fact.split_rows) > self._num_splits:
            raise InvalidRequestError(
                f"facts.split_rows: {fact.first_ordinal} + {len(fact.split_rows)} splits of a "
                f"partition, but the job has {self._num_splits}"
            )
        if fact.first_rows + sum(fact.split_rows) > _MOST_ROWS or fact.rows_seen > _MOST_ROWS:
            raise InvalidRequestError("facts: a partition has at most 2**62 rows")

    def _learn(self, fact: PartitionFact) -> str | None:
        partitions = self._known.setdefault(fact.epoch, {})
        known = partitions.setdefault(fact.partition, _Partition())
        borders = _borders(fact)
        merged = {**known.borders, **borders}
        highest = max(merged.values())
        rows_seen = max(known.rows_seen, fact.rows_seen, highest)
        totals = [each.rows_seen for each in (known, fact) if each.ended]
        if any(known.borders.get(ordinal, rows) != rows for ordinal, rows in borders.items()):
            problem = "a split has another length"
        elif any(merged[a] > merged[b] for a, b in pairwise(sorted(merged))):
            problem = "splits begin in another order"
        elif any(total != rows_seen for total in totals):
            problem = "it has another number of rows"
        else:
            ended = known.ended or fact.ended
            found = _Partition(merged, rows_seen, ended, max(known.remade, fact.remade))
            if found != replace(known, told=None):
                partitions[fact.partition] = found
            return None
        return (
            f"epoch {fact.epoch}, partition {fact.partition}: {problem} than an earlier report "
            "said: the dataset does not give the same rows each time"
        )


def _borders(fact: PartitionFact) -> dict[int, int]:
    rows = fact.first_rows
    borders = {fact.first_ordinal: rows}
    for ordinal, length in enumerate(fact.split_rows, fact.first_ordinal + 1):
        rows += length
        borders[ordinal] = rows
    return borders


def _told(known: _Partition, partition: int, epoch: int) -> list[PartitionFact]:
    if known.told is None:
        known.told = [
            PartitionFact(
                partition=partition,
                epoch=epoch,
                first_ordinal=run[0],
                first_rows=known.borders[run[0]],
                split_rows=[known.borders[b] - known.borders[a] for a, b in pairwise(run)],
                rows_seen=known.rows_seen,
                ended=known.ended,
                remade=known.remade,
            )
            for run in _runs(sorted(known.borders))
        ]
    return known.told


def _runs(ordinals: list[int]) -> list[list[int]]:
    """Ascending numbers, cut wherever one is left out."""
    runs = [[ordinals[0]]]
    for before, ordinal in pairwise(ordinals):
        if ordinal != before + 1:
            runs.append([])
        runs[-1].append(ordinal)
    return runs
