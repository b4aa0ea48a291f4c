"""The datasets of the schedules: entry points for workers, and the same rows for the ledger.

Every byte of a row is a function of (seed, epoch, split, row). A received row can therefore be
checked without a record of the rows that were sent.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.hashing import mix

SLOW_ENV = "CHAOS_SLOW_MS"
"""Extra milliseconds that one worker needs for each row."""
_PER_SPLIT = 1 << 20
_SEED_MASK = (1 << 31) - 1
_TEXT_LONGEST = 40


def row_id(split: int, row: int) -> int:
    """Return a row's number. It is never 0, because padding has 0."""
    return 1 + split * _PER_SPLIT + row


def split_and_row(number: int) -> tuple[int, int]:
    """Return (split, row) of a row's number."""
    return divmod(number - 1, _PER_SPLIT)


def rows_in(rows: Sequence[int], vary: bool, epoch: int, split: int) -> int:
    """Return the number of rows of a split in an epoch."""
    count = rows[split]
    return max(0, count + (7 * epoch + 3 * split) % 5 - 2) if vary and count else count


def context_seed(seed: int, epoch: int, consumer: int | None) -> int:
    """Return `ctx.seed` in an epoch. `consumer` is set if each consumer has its own epoch."""
    if consumer is not None:
        seed = mix(seed, consumer + 1)
    return mix(seed, epoch) & _SEED_MASK


def payload(seed: int, epoch: int, split: int, row: int, size: int) -> NDArray[np.uint8]:
    """Return a row's bytes as uint8[size]. `seed` is `ctx.seed`."""
    words = np.arange(-(-size // 8), dtype=np.uint64)
    words = words * np.uint64(0x9E3779B97F4A7C15) + np.uint64(mix(seed, epoch, split, row))
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    return words.view(np.uint8)[:size]


def text(seed: int, split: int, row: int) -> bytes:
    """Return a row's column of variable width; it is sometimes empty."""
    drawn = mix(seed, split, row)
    return f"{drawn:x}".encode() * 3 if drawn % 4 else b"x" * (drawn % _TEXT_LONGEST)


def element(seed: int, epoch: int, split: int, row: int, size: int, texts: bool) -> dict[str, Any]:
    """Return one row as the datasets produce it."""
    row_values: dict[str, Any] = {
        "id": np.int64(row_id(split, row)),
        "epoch": np.int64(epoch),
        "data": payload(seed, epoch, split, row, size),
    }
    if texts:
        row_values["text"] = text(seed, split, row)
    return row_values


def iterable(
    ctx: Any,
    rows: Sequence[int],
    vary: bool,
    size: int,
    sleep_ms: float,
    texts: bool,
    flaky: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a split. Entry point: a Python iterable."""
    split, pause = ctx.input_pipeline_id, sleep_ms + float(os.environ.get(SLOW_ENV, "0"))
    if ctx.source:
        split += int(ctx.source[1:]) * ctx.num_input_pipelines  # of all sources
    order = list(range(rows_in(rows, vary, ctx.epoch, split)))
    if flaky:
        random.Random(os.getpid()).shuffle(order)
    for row in order:
        if pause:
            time.sleep(pause / 1000)  # stands for the computation of a row
        yield element(ctx.seed, ctx.epoch, split, row, size, texts)


def graph(ctx: Any, rows: Sequence[int], vary: bool, size: int, texts: bool, batch: int) -> Any:
    """Return a split as a tf.data graph, batched if `batch` is not 0. Entry point."""
    import tensorflow as tf

    split = ctx.input_pipeline_id
    count = rows_in(rows, vary, ctx.epoch, split)
    elements = [element(ctx.seed, ctx.epoch, split, row, size, texts) for row in range(count)]
    columns: dict[str, Any] = {
        "id": np.array([m["id"] for m in elements], np.int64),
        "epoch": np.array([m["epoch"] for m in elements], np.int64),
        "data": np.array([m["data"] for m in elements], np.uint8).reshape(count, size),
    }
    if texts:
        columns["text"] = tf.constant([m["text"] for m in elements], tf.string, [count])
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    return dataset.batch(ctx.get_per_replica_batch_size(batch)) if batch else dataset
