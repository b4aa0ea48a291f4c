"""The splits of a source that begins again after its end, in one partition. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributed_input.api.hashing import mix

SPLIT_MASK = (1 << 32) - 1
"""Bits of the number of a split in a position, which also has its place in the list."""
_REMEMBERED_ROUNDS = 16


class RepeatedSplits(Sequence[int]):
    """The splits of a list without end: all of them, and then all of them in another order.

    Split s of round r has the number r * `total` + s. A round is an epoch of the source.

    Args:
        seed: seed of the order.
        epoch: epoch of the source in round 0.
        first: the splits in the order of round 0; at least one.
        total: splits of the job.
    """

    def __init__(self, seed: int, epoch: int, first: Sequence[int], total: int) -> None:
        self.period = len(first)
        self._seed, self._epoch, self._total = seed, epoch, total
        self._rounds: Mapping[int, Sequence[int]] = {}  # later rounds
        self._first = first

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, ordinal: int) -> int:  # type: ignore[override]  # slices: not needed
        number, at = divmod(ordinal, self.period)
        return number * self._total + self._order(number)[at]

    def __contains__(self, split: object) -> bool:
        return isinstance(split, int) and split % self._total in self._first

    def index(self, split: int, *_: int) -> int:
        """Return the ordinal of a split of the list."""
        number, own = divmod(split, self._total)
        return number * self.period + self._order(number).index(own)

    @property
    def most_empty(self) -> int:
        """Maximum of successive splits without rows. If there are more, no split has rows.

        The first splits of a round may be the last ones of the round before.
        """
        return 2 * self.period - 2

    def _order(self, number: int) -> Sequence[int]:
        """Return the splits in the order of a round."""
        order = self._rounds.get(number) if number else self._first
        if order is None:
            key = mix(self._seed, self._epoch + number)
            order = sorted(self._first, key=lambda split: (mix(key, split), split))
            kept = list(self._rounds.items())[1 - _REMEMBERED_ROUNDS :]
            self._rounds = {**dict(kept), number: order}  # read by several threads
        return order
