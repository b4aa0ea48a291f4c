"""Rows that wait in a Python function, as reads from object storage do.

Each row waits for 10 ms in `numpy_function`, in 64 calls at once. With `random`, each row also has
a random value from a branch, which depends on the order of calls in TensorFlow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from testing.bench.case import LOCAL, OURS, Case

if TYPE_CHECKING:
    import tensorflow as tf

WAIT_MS = 10
CALLS = 64
BATCH = 64


def dataset_fn(ctx: tf.distribute.InputContext, random: bool = False) -> tf.data.Dataset:
    """Return an endless dataset of batches of {"id": int64 [b], "noise": float32 [b]}."""
    import tensorflow as tf

    def load(row: tf.Tensor) -> dict[str, tf.Tensor]:
        loaded = {"id": tf.ensure_shape(tf.numpy_function(_wait, [row], tf.int64), [])}
        if random:
            loaded["noise"] = tf.cond(
                row % 2 == 0, lambda: tf.random.uniform([]), lambda: tf.random.normal([])
            )
        return loaded

    rows = tf.data.Dataset.range(1 << 40)
    rows = rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    options = tf.data.Options()
    options.threading.private_threadpool_size = CALLS  # the default is one thread for each core
    rows = rows.map(load, num_parallel_calls=CALLS).with_options(options)
    return rows.batch(ctx.get_per_replica_batch_size(BATCH))


def _wait(row: np.int64) -> np.int64:
    time.sleep(WAIT_MS / 1000)
    return row


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with and without a random op."""
    for name, random in (("numpy_function", False), ("numpy_function and a random op", True)):
        for workers in (1,) if quick else (1, 4):
            yield Case(
                "waiting",
                f"{WAIT_MS} ms, {CALLS} calls, {name}",
                f"{__name__}:dataset_fn",
                {"random": random},
                workers,
                systems=(LOCAL, OURS),
                unit="krows",
            )
