"""Random values in functions that run for many elements at once."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

CALLS = 16


def augmented(ctx: Any, rows: int, milliseconds: float = 5.0) -> tf.data.Dataset:
    """Return rows with values of random ops in branches, loops, generators and Keras layers.

    Each row waits in Python for a time that differs between rows, so rows end in another order than
    they begin.
    """
    import keras

    layers = keras.Sequential(
        [keras.layers.RandomFlip(seed=1), keras.layers.RandomRotation(0.2, seed=2)]
    )
    generator = tf.random.Generator.from_seed(5)
    image = tf.reshape(tf.range(48.0), [4, 4, 3])

    def wait(row: np.int64) -> np.int64:
        time.sleep(milliseconds / 1e3 * (1 + row % 3))
        return row

    def augment(row: tf.Tensor) -> dict[str, tf.Tensor]:
        waited = tf.ensure_shape(tf.numpy_function(wait, [row], tf.int64), [])
        branch = tf.cond(
            waited % 2 == 0, lambda: tf.random.uniform([3]), lambda: tf.random.normal([3])
        )
        walk = tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, x + tf.random.normal([])), (0, 0.0)
        )[1]
        return {
            "id": row,
            "branch": branch,
            "walk": walk,
            "drawn": generator.uniform([2]),
            "image": layers(image, training=True),
        }

    numbers = tf.data.Dataset.range(rows).shuffle(rows)
    numbers = numbers.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    options = tf.data.Options()
    options.threading.private_threadpool_size = CALLS
    return numbers.map(augment, num_parallel_calls=CALLS).with_options(options)
