"""The facts that consumers report about one job's partitions, merged. Pure.

Facts about an epoch never change, they only grow. So a merge is a union, and neither the order nor
repetition of reports matters. A report that contradicts the known facts is rejected as a whole and
counted: the dataset is not a function of (seed, epoch, split), or two runs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.link.statuses import InvalidRequestError

_MAX_ROWS = 1 << 62


@dataclass
class _Partition:
    """One partition in one epoch.

    Attributes:
        borders: number of rows before a split, by split ordinal.
        rows_seen: the partition has at least this many rows.
        ended: `rows_seen` is the total.
        remade: rows that were produced again, since the start.
        messages: the same facts as messages, cached at the first request.
    """

    borders: dict[int, int] = field(default_factory=lambda: {0: 0})
    rows_seen: int = 0
    ended: bool = False
    remade: int = 0
    messages: list[PartitionFact] | None = field(default=None, compare=False)


class FactStore:
    """The merged facts of one job."""

    def __init__(self, partitions: int, num_splits: int, max_epochs: int) -> None:
        self.partitions = partitions
        self._num_splits = num_splits
        self._max_epochs = max_epochs
        self._known: dict[int, dict[int, _Partition]] = {}  # epoch -> partition -> facts
        self.conflicts = 0
        """Number of reports that contradicted known facts."""

    def merge(self, facts: Iterable[PartitionFact], first: int, last: int) -> list[str]:
        """Merge a consumer's facts about the epochs `first` to `last`. Ignore other epochs.

        Returns:
            Descriptions of contradictions.

        Raises:
            InvalidRequestError: names the field. Nothing was merged.
        """
        relevant = [fact for fact in facts if first <= fact.epoch <= last]
        for fact in relevant:
            self._check(fact)
        conflicts = [text for fact in relevant if (text := self._merge(fact)) is not None]
        self.conflicts += len(conflicts)
        return conflicts

    def forget(self, before: int) -> None:
        """Remove epochs before `before`, and the oldest epochs if there are too many."""
        kept = sorted(epoch for epoch in self._known if epoch >= before)[-self._max_epochs :]
        if len(kept) < len(self._known):
            self._known = {epoch: self._known[epoch] for epoch in kept}

    def known(self, first: int, selected: Callable[[int], bool]) -> list[PartitionFact]:
        """Return the facts of epochs from `first` on, of the partitions that are `selected`.

        If only some ranges of splits are known, a partition has one fact per range.
        """
        return [
            fact
            for epoch in sorted(self._known)
            if epoch >= first
            for partition, known in self._known[epoch].items()
            if selected(partition)
            for fact in _to_messages(known, partition, epoch)
        ]

    def have_ended(self, epoch: int, partitions: Iterable[int]) -> bool:
        """Return whether the totals of all these partitions are known."""
        known = self._known.get(epoch, {})
        return all(p in known and known[p].ended for p in partitions)

    def _check(self, fact: PartitionFact) -> None:
        if fact.partition >= self.partitions:
            raise InvalidRequestError(
                f"facts.partition: {fact.partition}, but the job has {self.partitions} partitions"
            )
        if fact.first_ordinal + len(fact.split_rows) > self._num_splits:
            raise InvalidRequestError(
                f"facts.split_rows: {fact.first_ordinal} + {len(fact.split_rows)} splits in a "
                f"partition, but the job has {self._num_splits} splits"
            )
        if fact.first_rows + sum(fact.split_rows) > _MAX_ROWS or fact.rows_seen > _MAX_ROWS:
            raise InvalidRequestError("facts: a partition has at most 2**62 rows")

    def _merge(self, fact: PartitionFact) -> str | None:
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
            problem = "splits start in another order"
        elif any(total != rows_seen for total in totals):
            problem = "it has another number of rows"
        else:
            ended = known.ended or fact.ended
            found = _Partition(merged, rows_seen, ended, max(known.remade, fact.remade))
            if found != known:
                partitions[fact.partition] = found
            return None
        return (
            f"epoch {fact.epoch}, partition {fact.partition}: {problem} than an earlier report "
            "stated: the dataset does not produce the same rows each time"
        )


def _borders(fact: PartitionFact) -> dict[int, int]:
    rows = fact.first_rows
    borders = {fact.first_ordinal: rows}
    for ordinal, length in enumerate(fact.split_rows, fact.first_ordinal + 1):
        rows += length
        borders[ordinal] = rows
    return borders


def _to_messages(known: _Partition, partition: int, epoch: int) -> list[PartitionFact]:
    if known.messages is None:
        known.messages = [
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
    return known.messages


def _runs(ordinals: list[int]) -> list[list[int]]:
    """Split ascending numbers into runs of consecutive numbers."""
    runs = [[ordinals[0]]]
    for before, ordinal in pairwise(ordinals):
        if ordinal != before + 1:
            runs.append([])
        runs[-1].append(ordinal)
    return runs
