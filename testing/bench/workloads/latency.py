"""Rows that take a fixed time: measures how the throughput grows with the workers.

Every process computes one row in 10 ms, whatever the number of its pipelines and threads. It
represents a worker with one core that computes this long. The row waits and uses no core, so that a
machine with few cores can show whether a system scales.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testing.bench.case import DATA_PLANES, LOCAL, SERVICE, Case

if TYPE_CHECKING:
    import tensorflow as tf

WAIT_MS = 10

_row_lock = threading.Lock()


def dataset_fn(
    ctx: tf.distribute.InputContext, row_bytes: int, batch: int, shipped: bool = False
) -> tf.data.Dataset:
    """Return an endless dataset of batches uint8 [b, row_bytes], one row in 10 ms.

    Args:
        ctx: the input context.
        row_bytes: size of a row.
        batch: global batch size.
        shipped: for tf.data service, which cannot ship Python. TensorFlow's sleep op replaces the
            Python function. It has no lock and needs none: a worker there runs one pipeline.
    """
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensors(tf.zeros([row_bytes], tf.uint8)).repeat()
    if shipped:
        slow = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.experimental.to_variant(rows),
            sleep_microseconds=tf.constant(1000 * WAIT_MS, tf.int64),
            output_types=[tf.uint8],
            output_shapes=[[row_bytes]],
        )
        rows = tf.data.experimental.from_variant(slow, rows.element_spec)
    else:
        rows = rows.map(
            lambda row: tf.ensure_shape(tf.numpy_function(_wait, [row], tf.uint8), [row_bytes])
        )
    return rows.batch(ctx.get_per_replica_batch_size(batch))


def _wait(row: NDArray[np.uint8]) -> NDArray[np.uint8]:
    with _row_lock:
        time.sleep(WAIT_MS / 1000)
    return row


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with small rows on 1 to 16 workers, and with steps of 64 MiB on 1 and 8."""
    for workers in (1, 4) if quick else (1, 2, 4, 8, 16):
        yield _case("10 ms per row", 1024, 16, workers, partitions=16)
    for workers in (1,) if quick else (1, 8):
        yield _case("10 ms per row, steps of 64 MiB", 256 << 10, 256, workers)


def _case(name: str, row_bytes: int, batch: int, workers: int, **more: Any) -> Case:
    return Case(
        "latency",
        name,
        f"{__name__}:dataset_fn",
        {"row_bytes": row_bytes, "batch": batch},
        workers,
        service_args={"shipped": True},
        systems=(*((LOCAL,) if workers == 1 else ()), SERVICE, *DATA_PLANES),
        parallelism=1,
        unit="krows",
        **more,
    )
