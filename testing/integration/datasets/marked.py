"""Rows that a packet capture recognizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

MARK = b"A row in clear text, which nobody else may read."


def dataset_fn(ctx: Any, rows: int = 64, repeat: int = 1) -> tf.data.Dataset:
    """Return rows with an id and the mark, `repeat` times per row."""
    row = np.frombuffer(MARK * repeat, np.uint8)
    ids = tf.data.Dataset.range(rows).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return ids.map(lambda number: {"id": number, "text": tf.constant(row)})
