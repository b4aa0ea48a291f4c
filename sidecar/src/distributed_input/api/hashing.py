"""The hash that every process uses: for seeds, for the order of splits, for row digests."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """Hash integers to 64 bits (splitmix64, chained). All processes and versions agree."""
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ (value & _MASK)) & _MASK
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state
