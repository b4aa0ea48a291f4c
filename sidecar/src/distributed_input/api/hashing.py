"""The hash for seeds, for the order of splits and for row digests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """Return a 64-bit hash of integers (chained splitmix64).

    The result is part of the wire contract: every process and version returns the same value.
    """
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ (value & _MASK)) & _MASK
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def mix_each(first: int, seconds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return `mix(first, second)` of each second value, which takes nanoseconds for each."""
    state = (seconds ^ np.uint64(mix(first))) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
