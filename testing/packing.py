"""Packing of rows, row by row, in plain Python: what `distributed_input.pack` is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest

Row = Sequence[int]


def pack(rows: Iterable[Row], length: int, method: str, most: int) -> list[list[Row]]:
    """Return the rows, or parts of rows, of each packed row of `length` values.

    `most` is the number of sequences that are open at the same time.
    """
    rows = [row for row in rows if row]
    if method == "concatenate_and_cut":
        return _cut(rows, length)
    packed: list[list[Row]] = []
    opened: list[list[Row]] = []  # the oldest first, as `max` returns the first one
    for row in rows:
        fitting = [one for one in opened if size(one) + len(row) <= length]
        if fitting and method == "first_fit":
            fitting[0].append(row)
        elif fitting:
            max(fitting, key=size).append(row)
        else:
            if len(opened) == most:
                packed.append(max(opened, key=size))
                opened = [one for one in opened if one is not packed[-1]]
            opened.append([row])
    return packed + opened


def _cut(rows: Iterable[Row], length: int) -> list[list[Row]]:
    packed: list[list[Row]] = []
    for row in rows:
        rest = row
        while rest:
            if not packed or size(packed[-1]) == length:
                packed.append([])
            room = length - size(packed[-1])
            packed[-1].append(rest[:room])
            rest = rest[room:]
    return packed


def balance(packed: Sequence[list[Row]], window: int, rows_per_step: int) -> list[list[Row]]:
    """Return packed rows in the order of `packing.balanceWindow`."""
    found: list[list[Row]] = []
    spread = sorted(range(rows_per_step), key=lambda at: at * 0x9E3779B97F4A7C15 % 2**64)
    for start in range(0, len(packed), window):
        rows = sorted(packed[start : start + window], key=cost)
        bounds = [at * len(rows) // rows_per_step for at in range(rows_per_step + 1)]
        strata = [rows[first:end] for first, end in pairwise(bounds)]
        walks = [one[::2] + one[1::2][::-1] for one in strata]
        groups = zip_longest(*(walks[at] for at in spread))
        found += [row for group in groups for row in group if row is not None]
    return found


def cost(parts: Iterable[Row]) -> int:
    """Return the cost of attention for a packed row: the sum of the squares of its lengths."""
    return sum(len(part) ** 2 for part in parts)


def size(parts: Iterable[Row]) -> int:
    """Return the number of values."""
    return sum(map(len, parts))


def columns(parts: Sequence[Row], length: int, name: str = "tokens") -> dict[str, list[int]]:
    """Return the components of a packed row, by their names."""
    found = {
        name: [value for part in parts for value in part],
        "segment_ids": [number for number, part in enumerate(parts, 1) for _ in part],
        "positions": [at for part in parts for at in range(len(part))],
    }
    return {key: one + [0] * (length - len(one)) for key, one in found.items()}
