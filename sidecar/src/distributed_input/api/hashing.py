"""The hash for seeds, for the order of splits and for row digests."""

from __future__ import annotations

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
