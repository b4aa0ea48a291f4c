"""Rows that wait in a Python function, as reads from object storage do.

Each row waits for 10 ms in `numpy_function`, in 64 calls at once. With `random`, each row also has
a random value from a branch, which depends on the order of calls in TensorFlow. With `size`, each
row also has as many bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from testing.bench.case import DATA_PLANES, LOCAL, Case

if TYPE_CHECKING:
    import tensorflow as tf

WAIT_MS = 10
CALLS = 64
BATCH = 64


def dataset_fn(
    ctx: tf.distribute.InputContext, random: bool = False, size: int = 0
) -> tf.data.Dataset:
    """Return an endless dataset of batches of {"id": int64 [b]}.

    Args:
        ctx: context of the pipeline.
        random: add "noise": float32 [b].
        size: add "data": uint8 [b, size].
    """
    import tensorflow as tf

    def load(row: tf.Tensor) -> dict[str, tf.Tensor]:
        loaded = {"id": tf.ensure_shape(tf.numpy_function(_wait, [row], tf.int64), [])}
        if random:
            loaded["noise"] = tf.cond(
                row % 2 == 0, lambda: tf.random.uniform([]), lambda: tf.random.normal([])
            )
        if size:
            loaded["data"] = tf.fill([size], tf.cast(row % 256, tf.uint8))
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


_CASES: dict[str, dict[str, Any]] = {
    "numpy_function": {},
    "numpy_function, rows of 16 KiB": {"size": 16 << 10},
    "numpy_function and a random op": {"random": True},
}


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with small and large rows, and with a random op."""
    for name, args in _CASES.items():
        for workers in (1,) if quick else (1, 4, 16):
            yield Case(
                "waiting",
                f"{WAIT_MS} ms, {CALLS} calls, {name}",
                f"{__name__}:dataset_fn",
                args,
                workers,
                systems=(LOCAL, *DATA_PLANES),
                unit="krows",
            )
