"""Dataset functions with errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def raises(ctx: Any) -> tf.data.Dataset:
    folder: Any = None
    return folder.joinpath("rows")  # the error


def raises_slowly(ctx: Any) -> tf.data.Dataset:
    """Raise after the trainer has begun to report that it waits."""
    time.sleep(2.5)
    raise OSError("the bucket is gone")


def raises_late(ctx: Any, at: int = 30) -> tf.data.Dataset:
    """Fail at one of many rows."""
    rows = tf.data.Dataset.range(100).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)

    def check(row: Any) -> dict[str, Any]:
        with tf.control_dependencies(
            [tf.debugging.assert_none_equal(row, tf.constant(at, row.dtype))]
        ):
            return {"id": tf.identity(row)}

    return rows.map(check)


def raises_in_python(ctx: Any) -> Iterator[dict[str, Any]]:
    for row in range(100):
        if row == 30:
            raise OSError(f"row {row} cannot be read")  # the error
        yield {"id": np.int64(row)}


def differing(ctx: Any) -> tf.data.Dataset:
    """Return a dataset whose last split has another type."""
    last = ctx.input_pipeline_id == ctx.num_input_pipelines - 1
    dtype = tf.float32 if last else tf.int64
    return tf.data.Dataset.range(10).map(lambda row: {"id": row, "value": tf.cast(row, dtype)})


def no_dataset(ctx: Any) -> int:
    return 7


def imports_missing_package(ctx: Any) -> tf.data.Dataset:
    import no_such_package  # noqa: F401

    return tf.data.Dataset.range(1)


def nothing(ctx: Any) -> tf.data.Dataset:
    """Return a dataset without rows, which is not an error."""
    return tf.data.Dataset.range(0).map(lambda row: {"id": row})


def one_mixed_split(ctx: Any) -> tf.data.Dataset:
    """Return rows of different shapes in the first split, which is much the longest."""
    count, widths = (200_000, 4) if ctx.input_pipeline_id == 0 else (8, 1)
    rows = tf.data.Dataset.range(count)
    return rows.map(lambda row: {"id": row, "value": tf.range(1 + row % widths)})


def mixed_once(ctx: Any) -> tf.data.Dataset:
    """Return eight rows per split. In the first epoch, the last row of one has another shape."""
    rows = tf.data.Dataset.range(8)
    mixed = int(ctx.epoch == 0 and ctx.input_pipeline_id == 1)
    return rows.map(lambda row: {"id": row, "value": tf.range(1 + mixed * row // 7)})


def one_slow_split(ctx: Any) -> tf.data.Dataset:
    """Return eight rows, and a thousand rows of 50 ms in the second split."""
    if ctx.input_pipeline_id == 0:
        return tf.data.Dataset.range(8).map(lambda row: {"id": row})

    def slow(row: Any) -> Any:
        time.sleep(0.05)
        return row

    rows = tf.data.Dataset.range(1000, 2000)
    return rows.map(
        lambda row: {"id": tf.ensure_shape(tf.numpy_function(slow, [row], row.dtype), ())}
    )


def mixed_widths(ctx: Any) -> tf.data.Dataset:
    """Return rows of different shapes, which cannot be batched."""
    return tf.data.Dataset.range(8).map(lambda row: {"id": row, "value": tf.range(row)})
