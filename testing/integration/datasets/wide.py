"""Rows of many bytes, each filled with its number."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def wide(ctx: Any, rows: int = 100, width: int = 128 << 10) -> tf.data.Dataset:
    """Row r: `width` bytes, all of them r mod 251."""
    numbers = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return numbers.map(
        lambda row: {"id": row, "bytes": tf.fill([width], tf.cast(row % 251, tf.uint8))}
    )


def slow(ctx: Any, rows: int, kib: int, milliseconds: float) -> Iterator[dict[str, Any]]:
    """Row r: `kib` KiB, made in so many milliseconds."""
    for row in range(ctx.input_pipeline_id, rows, ctx.num_input_pipelines):
        time.sleep(milliseconds / 1e3)
        yield {"id": np.int64(row), "bytes": np.zeros(kib << 10, np.uint8)}


def slow_splits(ctx: Any, sizes: list[int], milliseconds: float) -> Iterator[dict[str, Any]]:
    """Split s has sizes[s] rows, made in so many milliseconds each."""
    before = sum(sizes[: ctx.input_pipeline_id])
    for row in range(before, before + sizes[ctx.input_pipeline_id]):
        time.sleep(milliseconds / 1e3)
        yield {"id": np.int64(row)}


def stuck(ctx: Any, behind: int) -> Iterator[dict[str, Any]]:
    """Some rows, and then it hangs."""
    for row in range(behind):
        time.sleep(0.01)  # rows that come quickly wait for the next, to share a message
        yield {"id": np.int64(row)}
    time.sleep(3600)
