"""Rows that cost no CPU to compute: measures the delivery to the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testing.bench.case import DATA_PLANES, Case

if TYPE_CHECKING:
    import tensorflow as tf

KIB = 1 << 10
ROW_BYTES = 128 * KIB


def dataset_fn(ctx: tf.distribute.InputContext, batch: int) -> tf.data.Dataset:
    """Return an endless dataset of batches uint8 [b, 131072] of random bytes.

    One row is repeated, so that the source only copies it into the batch. Random bytes do not
    compress, like decoded pixels.
    """
    import tensorflow as tf

    words = tf.random.stateless_uniform(
        [ROW_BYTES // 4], seed=(1, 2), minval=None, maxval=None, dtype=tf.int32
    )
    row = tf.reshape(tf.bitcast(words, tf.uint8), [ROW_BYTES])
    rows = tf.data.Dataset.from_tensors(row).repeat()
    return rows.batch(ctx.get_per_replica_batch_size(batch))


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with batches of one row and of 32 rows."""
    target = f"{__name__}:dataset_fn"
    for name, batch in (("128 KiB batches", 1), ("4 MiB batches", 32)):
        for workers in (1,) if quick else (1, 2, 4):
            yield Case("transport", name, target, {"batch": batch}, workers)
    if not quick:
        yield Case(
            "transport",
            "4 MiB batches",
            target,
            {"batch": 64},
            trainers=2,
            systems=tuple(DATA_PLANES),
        )
