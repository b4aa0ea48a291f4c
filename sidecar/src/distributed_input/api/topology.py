"""Which numbers of trainers can share an input. Pure.

`order` raises the same errors for a job whose batch size is known. Here, it may not be.
"""

from __future__ import annotations

from collections.abc import Sequence

_MOST_SHOWN = 8
_MOST_DEFAULT = 8


def divisors(number: int) -> list[int]:
    """Return all divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def default_partitions(rows_per_step: int) -> int:
    """Return the default of P: the largest divisor of the global batch that is at most 8.

    Eight partitions support 1, 2, 4 and 8 trainers. More partitions need more open splits.
    """
    return max(d for d in divisors(rows_per_step) if d <= _MOST_DEFAULT)


def possible_trainers(partitions: int) -> str:
    """Return the numbers of trainers that can share P partitions, as text.

    >>> possible_trainers(8)
    '1, 2, 4 or 8'
    """
    return _alternatives(divisors(partitions))


def trainers_problem(
    trainers: int, partitions: int | None, rows: int | None, *, parallel: bool
) -> str:
    """Return why a number of trainers cannot read an input, and what to do; "" if they can.

    Law: with `partitions` and `rows`, it is "" if and only if `order.share_of` raises nothing
    for these trainers. `partitions` is None for the default, and `rows` if the dataset determines
    them. `parallel`: each trainer reads the whole dataset.
    """
    if rows and rows % trainers and parallel:
        return (
            f"{trainers} trainers cannot divide a global batch of {rows} rows. Set "
            f"spec.batching.globalBatchSize to a multiple of {trainers}, or use "
            f"{_alternatives(divisors(rows))} trainers"
        )
    if partitions is None and rows:
        partitions = default_partitions(rows)
    if partitions is None or parallel:
        return ""
    if partitions % trainers:
        verb = "share" if trainers > partitions else "divide"
        return (
            f"{trainers} trainers cannot {verb} {partitions} partitions. Use "
            f"{possible_trainers(partitions)} trainers, or {_other_partitions(trainers, rows)}"
        )
    return ""


def _other_partitions(trainers: int, rows: int | None) -> str:
    if not rows:
        return f"set spec.partitions to a multiple of {trainers}"
    fitting = [d for d in divisors(rows) if d % trainers == 0]
    if fitting:
        return f"set spec.partitions to {_alternatives(fitting)}"
    return (
        "set spec.partitions and the global batch size (spec.batching.globalBatchSize, or in "
        f"dataset_fn) to multiples of {trainers}"
    )


def _alternatives(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:_MOST_SHOWN]]
    if len(numbers) > _MOST_SHOWN:
        return f"{', '.join(shown)}, …"
    return " or ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)
