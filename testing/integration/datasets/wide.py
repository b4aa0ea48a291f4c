"""Rows of many bytes, each filled with its number."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing


def wide(ctx: Any, rows: int = 100, width: int = 128 << 10) -> tf.data.Dataset:
    """Return rows r of `width` bytes, each r mod 251."""
    numbers = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return numbers.map(
        lambda row: {"id": row, "bytes": tf.fill([width], tf.cast(row % 251, tf.uint8))}
    )


def timed(ctx: Any, rows: int, milliseconds: float) -> tf.data.Dataset:
    """Return shuffled rows that take this number of milliseconds each, without Python functions."""
    numbers = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    slow = numbers.shuffle(64, seed=3).apply(testing.sleep(int(milliseconds * 1000)))
    return slow.map(lambda row: {"id": row, "value": row * 2}, num_parallel_calls=2)


def computed(ctx: Any, rows: int, milliseconds: float) -> tf.data.Dataset:
    """Return shuffled rows that take TensorFlow about this time each, and cannot be skipped."""
    numbers = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)

    def compute(row: tf.Tensor) -> dict[str, tf.Tensor]:
        total = tf.reduce_sum((tf.range(int(4e5 * milliseconds), dtype=tf.int64) + row) % 7)
        return {"id": row + tf.cast(total < 0, tf.int64), "value": row * 2}

    slow = numbers.shuffle(64, seed=3).map(compute, num_parallel_calls=2)
    return slow.filter(lambda row: row["id"] >= 0)


def timed_python(ctx: Any, rows: int, milliseconds: float) -> tf.data.Dataset:
    """Return shuffled rows that a Python function computes in this number of milliseconds each."""

    def load(row: Any) -> Any:
        time.sleep(milliseconds / 1e3)
        return row

    def compute(row: tf.Tensor) -> dict[str, tf.Tensor]:
        loaded = tf.ensure_shape(tf.numpy_function(load, [row], tf.int64), [])
        return {"id": loaded, "value": row * 2}

    numbers = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return numbers.shuffle(64, seed=3).map(compute, num_parallel_calls=2)


def slow(ctx: Any, rows: int, kib: int, milliseconds: float) -> Iterator[dict[str, Any]]:
    """Yield rows of `kib` KiB that take this number of milliseconds each."""
    for row in range(ctx.input_pipeline_id, rows, ctx.num_input_pipelines):
        time.sleep(milliseconds / 1e3)
        yield {"id": np.int64(row), "bytes": np.zeros(kib << 10, np.uint8)}


def slow_splits(ctx: Any, sizes: list[int], milliseconds: float) -> Iterator[dict[str, Any]]:
    """Yield sizes[s] rows in split s that take this number of milliseconds each."""
    before = sum(sizes[: ctx.input_pipeline_id])
    for row in range(before, before + sizes[ctx.input_pipeline_id]):
        time.sleep(milliseconds / 1e3)
        yield {"id": np.int64(row)}


def stuck_split(ctx: Any, rows: int, split: int) -> Iterator[dict[str, Any]]:
    """Yield this number of rows in each split. One split hangs at its first row."""
    if ctx.input_pipeline_id == split:
        time.sleep(3600)
    for row in range(rows):
        yield {"id": np.int64(ctx.input_pipeline_id * rows + row)}


def stuck(ctx: Any, rows_before: int) -> Iterator[dict[str, Any]]:
    """Yield some rows, and then hang."""
    for row in range(rows_before):
        time.sleep(0.01)  # fast rows wait for the next one, to share a message
        yield {"id": np.int64(row)}
    time.sleep(3600)


def held(ctx: Any, rows: int, rows_before: int, until: str, kib: int = 1) -> Iterator[Any]:
    """Yield rows of `kib` KiB, but wait before row `rows_before` until the file `until` exists."""
    for row in range(ctx.input_pipeline_id, rows, ctx.num_input_pipelines):
        time.sleep(0.01)  # fast rows wait for the next one, to share a message
        while row >= rows_before and not Path(until).exists():
            time.sleep(0.05)
        yield {"id": np.int64(row), "bytes": np.zeros(kib << 10, np.uint8)}


def shrinking(ctx: Any, rows: int, milliseconds: float, shrunk: str) -> Iterator[Any]:
    """Yield slow rows. Yield a single row after the file `shrunk` exists."""
    for row in range(1 if Path(shrunk).exists() else rows):
        time.sleep(milliseconds / 1e3)
        yield {"id": np.int64(row)}
