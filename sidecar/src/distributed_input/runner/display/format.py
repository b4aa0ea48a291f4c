"""Statistics as text: pure functions."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

from distributed_input.runner.display.stats import InputStats


def progress_line(name: str, stats: InputStats, desired_workers: int) -> str:
    """Return one line about one input, without a line end.

    >>> progress_line("train", InputStats(), 2)
    'train: waiting for: dispatcher'
    """
    waiting = stats.waiting_for(desired_workers)
    totals, rates = stats.totals(), stats.rates()
    stalled = "".join(f" | no progress: {text}" for text in stats.stalled[:1])
    if not totals.rows:
        workers = (
            f" | workers {stats.ready_workers}/{desired_workers}" if stats.is_reachable else ""
        )
        return f"{name}: waiting for: {waiting}{workers}{stalled}"
    rows = f"{stats.row}s"
    if not stats.is_reachable:  # rows can flow without the dispatcher
        head = f"{name}: epoch {totals.epochs} | at least {count(totals.rows)} {rows}"
        return f"{head} | dispatcher not reachable"
    fields = [
        f"epoch {totals.epochs}",
        f"{count(totals.rows)} {rows}",
        f"{count(rates.rows)} {rows}/s",
        f"{rate(rates.batches)} batches/s",
        f"stall {share(rates.stall)}",
        f"buffer {stats.buffer:.0%}",
        f"workers {stats.ready_workers}/{desired_workers}",
    ]
    if totals.mismatches:
        fields.append(f"replay mismatches {totals.mismatches}")
    if waiting:
        fields.append(f"waiting for: {waiting}")
    return f"{name}: " + " | ".join(fields) + stalled


def count(number: float) -> str:
    """Return a number with at most four digits and a unit.

    >>> [count(n) for n in (0, 7, 999, 1234, 56789, 1234567, 9.87e9)]
    ['0', '7', '999', '1234', '56.8k', '1.23M', '9.87G']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            shown = number / (1e3 if unit == "k" else size)
            return f"{shown:.3g}{unit}" if shown < 1000 else f"{shown:.0f}{unit}"
    return f"{number:.0f}"


def rate(number: float | None) -> str:
    """Return a rate; below 100 with one decimal place. None: unknown.

    >>> [rate(n) for n in (0, 0.25, 12.34, 1234.5, None)]
    ['0.0', '0.2', '12.3', '1234', '-']
    """
    if number is None:
        return "-"
    return f"{number:.1f}" if number < 100 else count(number)


def share(value: float | None) -> str:
    """Return a share, 0 to 1, in percent. None: unknown.

    >>> share(0.25), share(None)
    ('25%', '-')
    """
    return "-" if value is None else f"{value:.0%}"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "worker"), plural(2, "epoch"), plural(0, "batch")
    ('1 worker', '2 epochs', '0 batches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("tch") else "s"
    return f"{number} {noun}{ending}"


def memory(size: int) -> str:
    """Return a number of bytes in MiB or GiB.

    >>> memory(300 * 2**20), memory(3 * 2**30)
    ('300 MiB', '3.0 GiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def table(
    rows: Sequence[Sequence[str]],
    indent: str = "  ",
    empty: str = "",
    left: Collection[str] = (),
) -> str:
    """Return rows of cells as aligned columns. The first row is the header.

    If there are no other rows, return the line `empty` instead. The first column and those with a
    header in `left` are aligned left.
    """
    if empty and len(rows) == 1:
        return f"{empty}\n"
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(
            # Names are aligned left, numbers right.
            cell.ljust(width) if i == 0 or rows[0][i] in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
    return "".join(f"{indent}{line}\n" for line in lines)


def wrapped(label: str, text: str) -> str:
    """Return text as lines of at most 100 columns. The first one begins with the label."""
    indent = " " * len(label)
    lines = textwrap.wrap(
        text,
        100,
        initial_indent=label,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join(f"{line}\n" for line in lines)


def truncated(line: str, width: int) -> str:
    """Return `line`, cut to `width` columns."""
    return line if len(line) <= width else line[: max(0, width - 3)] + "..."
