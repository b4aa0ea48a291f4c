"""How the numbers look: pure text, no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.runner.display.stats import Tally


def live(name: str, tally: Tally, desired_workers: int) -> str:
    """One line about one input, without a line end.

    >>> live("train", Tally(), 2)
    'train: waiting for: dispatcher'
    """
    waiting = tally.waiting_for(desired_workers)
    totals, rates = tally.totals(), tally.rates()
    if not totals.rows:
        ready = f" | workers {tally.ready_workers}/{desired_workers}" if tally.last else ""
        return f"{name}: waiting for: {waiting}{ready}"
    if tally.last is None:  # rows flow without it
        head = f"{name}: epoch {totals.epochs} | {count(totals.rows)} rows"
        return f"{head} or more | no news: the dispatcher is away"
    stall = "-" if rates.stall is None else f"{rates.stall:.0%}"
    fields = [
        f"epoch {totals.epochs}",
        f"{count(totals.rows)} rows",
        f"{count(rates.rows)} rows/s",
        f"{rate(rates.batches)} batches/s",
        f"stall {stall}",
        f"buffer {tally.buffer:.0%}",
        f"workers {tally.ready_workers}/{desired_workers}",
    ]
    if totals.mismatches:
        fields.append(f"replay mismatches {totals.mismatches}")
    if waiting:
        fields.append(f"waiting for: {waiting}")
    return f"{name}: " + " | ".join(fields)


def count(number: float) -> str:
    """A number of things in few characters.

    >>> [count(n) for n in (0, 7, 999, 1234, 56789, 1234567, 9.87e9)]
    ['0', '7', '999', '1234', '56.8k', '1.23M', '9.87G']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            shown = number / (1e3 if unit == "k" else size)
            return f"{shown:.3g}{unit}" if shown < 1000 else f"{shown:.0f}{unit}"
    return f"{number:.0f}"


def rate(number: float) -> str:
    """A small rate with a digit behind the point.

    >>> [rate(n) for n in (0, 0.25, 12.34, 1234.5)]
    ['0.0', '0.2', '12.3', '1234']
    """
    return f"{number:.1f}" if number < 100 else count(number)


def memory(size: int) -> str:
    """Bytes as MiB or GiB.

    >>> memory(300 * 2**20), memory(3 * 2**30)
    ('300 MiB', '3.0 GiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> str:
    """Rows of cells in columns, the first row above the others; ends with a line end."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(
            # Names to the left, numbers to the right.
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "".join(f"{indent}{line}\n" for line in lines)


def fitted(line: str, width: int) -> str:
    """`line` cut to `width` columns."""
    return line if len(line) <= width else line[: max(0, width - 3)] + "..."
