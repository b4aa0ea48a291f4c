"""A dataset whose rows are slow in one way. Workers import it."""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf


def dataset_fn(
    context: tf.distribute.InputContext,
    compute: int = 0,
    wait: float = 0.0,
    stuck: int = -1,
    size: int = 0,
) -> tf.data.Dataset:
    """Return rows.

    Args:
        context: the split.
        compute: products of matrices for each row: CPU time.
        wait: seconds that each row sleeps, as it does for slow storage.
        stuck: index in each split of a row that sleeps for minutes.
        size: bytes of each row; 0: a number.
    """
    # Not `shard`, which reads the rows of all splits for each split.
    rows = tf.data.Dataset.range(context.input_pipeline_id, 10_000_000, context.num_input_pipelines)
    rows = rows.map(lambda row: _computed(row, compute))
    if wait or stuck >= 0:

        def slept(row: np.int64) -> np.int64:
            time.sleep(300.0 if row // context.num_input_pipelines == stuck else wait)
            return row

        rows = rows.map(lambda row: tf.ensure_shape(tf.numpy_function(slept, [row], tf.int64), []))
    if size:
        rows = rows.map(lambda row: tf.fill([size], tf.cast(row % 256, tf.uint8)))
    return rows.batch(context.get_per_replica_batch_size(16))


def _computed(row: tf.Tensor, compute: int) -> tf.Tensor:
    matrix = tf.fill([256, 256], tf.cast(row, tf.float32))
    for _ in range(compute):
        matrix = tf.linalg.matmul(matrix, matrix) * 0.0
    return row + tf.cast(matrix[0, 0], tf.int64) if compute else row
