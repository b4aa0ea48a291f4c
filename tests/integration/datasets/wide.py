"""Rows of many bytes, each filled with its number."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def wide(ctx: Any, rows: int = 100, width: int = 128 << 10) -> tf.data.Dataset:
    """Row r: `width` bytes, all of them r mod 251."""
    numbers = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return numbers.map(
        lambda row: {"id": row, "bytes": tf.fill([width], tf.cast(row % 251, tf.uint8))}
    )
