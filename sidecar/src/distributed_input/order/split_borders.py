"""The known borders of the splits of a partition, and the rows between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2
from distributed_input.order.repeated_splits import SPLIT_MASK, RepeatedSplits


class RowRange(NamedTuple):
    """Consecutive rows of one split: `rows` rows from index `first_row` on.

    In a mixture, `split` is its number in the epoch, see `split_names`.
    """

    split: int
    first_row: int
    rows: int


class UnknownLengthError(PositionError):
    """The answer depends on the number of rows of `split`, which is not known."""

    def __init__(self, split: int) -> None:
        super().__init__(
            f"the number of rows of split {split} is not known: pass it in `lengths`. For an "
            "endless split, pass any number that is larger than the rows that were read"
        )
        self.split = split


class SplitBorders:
    """The rows before some splits of a partition, or of one list of splits of a mixture.

    Args:
        position: a saved position, which has one border of each list.
        index: index of the list.
        splits: its splits, in order.
        lengths: rows of splits, by split, as far as they are known.

    Raises:
        PositionError: they contradict each other.
    """

    def __init__(
        self,
        position: trainer_pb2.Position,
        index: int,
        splits: Sequence[int],
        lengths: Mapping[int, int],
    ) -> None:
        anchor = position.anchors[index] if position.anchors else trainer_pb2.Anchor()
        self._splits = splits
        self._starts: dict[int, int] = {}  # rows before a split, by its ordinal, or before the end
        self._learn(0, 0)
        self._learn(anchor.ordinal, anchor.rows)
        if anchor.ended:
            self._learn(len(splits), anchor.rows)
        given = sorted(self._starts)
        for at in given:
            self._learn_after(at, lengths)
        for at in given:
            self._learn_before(at, lengths)
        self._anchor, self._least = anchor.ordinal, anchor.rows
        for prefix in position.prefixes:
            if (
                prefix.partition == index
                and anchor.ordinal < len(splits)
                and prefix.split == splits[anchor.ordinal] & SPLIT_MASK
            ):
                self._least += prefix.rows  # rows that the list has at least
        borders = [rows for _, rows in sorted(self._starts.items())]
        later = [rows for at, rows in self._starts.items() if at > self._anchor]
        if borders != sorted(borders) or any(rows < self._least for rows in later):
            raise PositionError(CONTRADICTION)

    @property
    def total(self) -> int | None:
        """Rows of the whole list, or None if that is not known."""
        return self._starts.get(len(self._splits))

    def has(self, rows: int) -> bool:
        """Return whether the list has so many rows.

        Raises:
            UnknownLengthError: it is not known.
        """
        if self.total is None and rows > self._least:
            self.locate(rows - 1, 1)
        return self.total is None or rows <= self.total

    def locate(self, first: int, rows: int) -> list[RowRange]:
        """Return where `rows` rows from row `first` on are.

        Raises:
            UnknownLengthError: the list may have no such row, or a border is not known.
            PositionError: the list has ended before, or it has no rows, so that it cannot repeat.
        """
        found, end = [], first + rows
        while first < end:
            at, start = max(one for one in self._starts.items() if one[1] <= first)
            if at == len(self._splits):
                raise PositionError(CONTRADICTION)  # it has ended before these rows
            stop = self._starts.get(at + 1)
            if stop is None and at == self._anchor and first < self._least:
                stop = self._least
            if stop is None:
                raise UnknownLengthError(self._next_unknown(at, start, first))
            taken = min(stop, end) - first
            found.append(RowRange(self._splits[at], first - start, taken))
            first += taken
        return found

    def _next_unknown(self, at: int, start: int, row: int) -> int:
        """Return the split to read next: from the nearer of the borders around a row."""
        splits = self._splits
        most_empty = splits.most_empty if isinstance(splits, RepeatedSplits) else len(splits)
        if self._starts.get(at - most_empty - 1) == start:
            raise PositionError(CONTRADICTION)  # no split has rows, so that it has no end
        later = min((one for one in self._starts if one > at), default=None)
        if later is None or row - start <= self._starts[later] - row:
            return splits[at]
        return splits[later - 1]

    def _learn_after(self, at: int, lengths: Mapping[int, int]) -> None:
        """Learn the borders behind a known one, up to a split of unknown length."""
        is_new = True
        while is_new and at < len(self._splits) and self._splits[at] in lengths:
            is_new = self._learn(at + 1, self._starts[at] + lengths[self._splits[at]])
            at += 1

    def _learn_before(self, at: int, lengths: Mapping[int, int]) -> None:
        """Learn the borders before a known one, back to a split of unknown length."""
        is_new = True
        while is_new and at > 0 and self._splits[at - 1] in lengths:
            is_new = self._learn(at - 1, self._starts[at] - lengths[self._splits[at - 1]])
            at -= 1

    def _learn(self, ordinal: int, rows: int) -> bool:
        """Learn a border. Return whether it was not known. Raises PositionError."""
        is_new = ordinal not in self._starts
        known = self._starts.setdefault(ordinal, rows)
        if ordinal > len(self._splits) or rows < 0 or known != rows:
            raise PositionError(CONTRADICTION)
        return is_new


CONTRADICTION = (
    "the lengths of splits do not fit the borders of splits in the checkpoint: the dataset has "
    "changed since it was saved, or the checkpoint is damaged"
)
