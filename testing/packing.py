"""Packing of rows, row by row, in plain Python: what `distributed_input.pack` is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
