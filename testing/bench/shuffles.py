"""How far rows move if each split has its own shuffle buffer, beside one buffer in the trainer.

    python -m testing.bench.shuffles [--rows 100000] [--buffer 10000]

No processes are started. The order is that of `assignment`: the deal of the splits to partitions,
and steps that take the same number of rows from each partition. Prints a Markdown table:

- "Moved": the mean distance between the places of a row in the source and in the epoch, divided by
  that of a uniform permutation.
- "Distance in a batch": the mean distance in the source between two rows of a batch, divided in the
  same way. Rows that are neighbours in the source are often alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distributed_input.assignment import splits as assignment

PARTITIONS, BATCH, SEED = 8, 256, 7
Order = NDArray[np.int64]


def main() -> None:
    """Measure all orders, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.shuffles", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--buffer", type=int, default=10_000)
    options = parser.parse_args()
    rows, buffer = options.rows, options.buffer
    print("| Order | Buffer | Moved | Distance in a batch |")
    print("|---|---|---|---|")
    for size in (buffer, rows):
        _print("one shuffle in the trainer", size, shuffled(np.arange(rows), size, 0))
    for splits in (32, 96):
        for size in (1, buffer // splits, buffer):
            _print(f"{splits} splits of consecutive rows", size, epoch(rows, splits, size, False))
    _print("32 splits of every 32nd row", buffer, epoch(rows, 32, buffer, True))


def _print(name: str, buffer: int, order: Order) -> None:
    print(f"| {name} | {buffer:,} | {moved(order):.2f} | {spread(order):.2f} |", flush=True)


def shuffled(rows: Order, buffer: int, seed: int) -> Order:
    """Return rows as `Dataset.shuffle` returns them."""
    dataset = tf.data.Dataset.from_tensor_slices(rows).shuffle(buffer, seed=seed + 1)
    return np.concatenate([batch.numpy() for batch in dataset.batch(4096)])


def epoch(rows: int, splits: int, buffer: int, strided: bool) -> Order:
    """Return the rows of an epoch in the order of delivery.

    Args:
        rows: number of rows.
        splits: number of splits.
        buffer: buffer of the shuffle in each split.
        strided: a split has every n-th row instead of consecutive rows.
    """
    numbers = np.arange(rows)
    parts = [numbers[i::splits] for i in range(splits)]
    if not strided:
        parts = list(np.array_split(numbers, splits))
    dealt = assignment.deal(SEED, 0, splits, PARTITIONS)
    lists = [np.concatenate([shuffled(parts[i], buffer, SEED) for i in one]) for one in dealt]
    return np.concatenate(list(_steps(lists)))


def _steps(lists: list[Order]) -> Iterator[Order]:
    taken = dict.fromkeys(range(PARTITIONS), 0)
    while any(taken[p] < len(lists[p]) for p in taken):
        live = [p for p in taken if taken[p] < len(lists[p])]
        turns = assignment.batch_turns(live, BATCH, BATCH // PARTITIONS)
        got: int | None = None
        while True:
            try:
                p, need = next(turns) if got is None else turns.send(got)
            except StopIteration:
                break
            part = lists[p][taken[p] : taken[p] + need]
            got = len(part)
            taken[p] += got
            yield part


def moved(order: Order) -> float:
    """Return the mean distance that rows moved, relative to a uniform permutation (n / 3)."""
    return float(np.abs(order - np.arange(len(order))).mean() / (len(order) / 3))


def spread(order: Order) -> float:
    """Return the mean distance of two rows of a batch, relative to a uniform permutation."""
    batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    apart = np.abs(batches[:, :, None] - batches[:, None, :]).mean() * BATCH / (BATCH - 1)
    return float(apart / (len(order) / 3))


if __name__ == "__main__":
    main()
