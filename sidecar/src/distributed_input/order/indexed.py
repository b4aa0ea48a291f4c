"""Datasets that are read by index: a split reads a range of a permutation of all indexes. Pure.

The permutation is a function of (seed, epoch, position) that needs no memory. So the shuffle is
global, no row is read twice, and a split can begin at any of its rows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from distributed_input.api.hashing import mix

_CHUNK = 1024  # positions that are permuted together
_ROUNDS = 6
_TOGETHER = 16  # rows of one call of `__getitems__`
_PROBED = 3  # rows that show what it returns
_SLOW_SECONDS = 0.002  # of a row
_SORTED = 4096  # a Feistel network of few bits does not have all permutations


class IndexedSource(Protocol):
    """What can be read by index: a map-style dataset of PyTorch, a list, a Hugging Face dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Indexed:
    """A dataset that an entry point returns for every split, and that the splits divide.

    Attributes:
        source: returns the row of each index from 0 to its length.
        shuffle: whether each epoch has its own random order of all rows. If not, the order is that
            of the source within each split.
    """

    source: IndexedSource
    shuffle: bool = True

    def __len__(self) -> int:
        return len(self.source)

    def rows(
        self,
        split: int,
        splits: int,
        seed: int,
        epoch: int,
        start: int = 0,
        failed: Callable[..., object] | None = None,
        excludes: Callable[[int], bool] | None = None,
    ) -> Iterator[Any]:
        """Yield the rows of a split from row `start` on.

        `failed` gets the error of a row, and its index in the source as `index`. If it returns, the
        split continues with the next row. None: errors are raised. `excludes` returns whether the
        row of an index is left out.

        Law: the splits together have each row once.
        """
        key = mix(seed, epoch) if self.shuffle else None
        found = indexes(len(self), split, splits, key, start)
        many = getattr(self.source, "__getitems__", None)
        if many is not None and failed is None:
            yield from self._together(many, found, start)
            return
        for index in found:
            if excludes is not None and excludes(index):
                continue
            try:
                row = self.source[index]
            except Exception as error:
                if failed is None:
                    raise
                failed(error, index=index)
                continue
            yield row

    def _together(
        self, many: Callable[[list[int]], Any], found: Iterator[int], start: int
    ) -> Iterator[Any]:
        """Yield rows that the source returns several at a time, as PyTorch's DataLoader reads them.

        An answer may have the columns of a batch, for a `collate_fn` of its own. Their number does
        not grow with the rows, so two calls of different sizes show it. Such rows, and slow ones,
        whose progress would be hidden, are read one by one.
        """
        first, began = list(itertools.islice(found, _PROBED)), time.perf_counter()
        rows = self._answers(many, first[:1]) + self._answers(many, first[1:])
        seconds = (time.perf_counter() - began) / _PROBED
        if len(rows) != _PROBED or seconds > _SLOW_SECONDS:
            known = rows if len(rows) == _PROBED else []
            yield from known
            yield from map(self.source.__getitem__, itertools.chain(first[len(known) :], found))
            return
        yield from rows
        # The rows at a multiple of `_TOGETHER` begin another call, wherever a split resumes.
        size = _TOGETHER - (start + _PROBED) % _TOGETHER
        while some := list(itertools.islice(found, size)):
            size = _TOGETHER
            yield from self._answers(many, some) or map(self.source.__getitem__, some)

    def _answers(self, many: Callable[[list[int]], Any], some: list[int]) -> list[Any]:
        """Return the rows of some indexes; [] if an error, or another answer, is returned."""
        try:
            rows = many(some)
        except Exception:  # noqa: BLE001 - raised again at its row
            return []
        return list(rows) if isinstance(rows, (list, tuple)) and len(rows) == len(some) else []


def has_index(value: object) -> bool:
    """Return whether a value can only be read by index: an iterable has the rows of one split."""
    return (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not hasattr(value, "__iter__")
    )


def indexes(rows: int, split: int, splits: int, key: int | None, start: int = 0) -> Iterator[int]:
    """Yield the indexes of a split's rows, from row `start` on.

    Args:
        rows: number of rows of the dataset.
        split: number of the split.
        splits: number of splits.
        key: selects the permutation; None: the indexes in their order.
        start: rows of the split before the first one that is returned.
    """
    first, end = rows * split // splits + start, rows * (split + 1) // splits
    if key is None:
        yield from range(first, end)
        return
    for at in range(first, end, _CHUNK):
        positions = np.arange(at, min(at + _CHUNK, end), dtype=np.uint64)
        yield from permute(positions, rows, key).tolist()


def permute(positions: npt.NDArray[np.uint64], size: int, key: int) -> npt.NDArray[np.uint64]:
    """Return where a permutation of `size` numbers maps positions.

    Few numbers are sorted by a hash. Else a Feistel network permutes the numbers of an even number
    of bits. A number that is not below `size` is mapped again, until it is: at most four times on
    average.
    """
    if size <= _SORTED:
        hashes = _hash(np.arange(size, dtype=np.uint64) + np.uint64(mix(key)))
        return np.argsort(hashes, kind="stable").astype(np.uint64)[positions]
    half = np.uint64(((size - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    keys = [np.uint64(mix(key, number)) for number in range(_ROUNDS)]
    result = _encrypt(positions, half, mask, keys)
    while (outside := result >= size).any():
        result[outside] = _encrypt(result[outside], half, mask, keys)
    return result


def _encrypt(
    numbers: npt.NDArray[np.uint64], half: np.uint64, mask: np.uint64, keys: list[np.uint64]
) -> npt.NDArray[np.uint64]:
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (_hash(right ^ key) & mask)
    return (left << half) | right


def _hash(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return hashes of numbers (the end of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
