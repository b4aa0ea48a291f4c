"""Small rows, as language models read them: the costs of each row, not of each byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from testing.bench.case import OURS, OURS_GRPC, SERVICE, Case

if TYPE_CHECKING:
    import tensorflow as tf

BATCH = 1024
_TOKENS = 128
_KINDS = {
    "tokens": "520-byte rows: an id and 128 int32",
    "strings": "520-byte rows: an id and a string",
    "columns": "16 KiB rows: 8 columns",
    "ragged": "rows of 64 to 192 int32, ragged",
    "sparse": "rows of 32 of 10,000 values, sparse",
}


def dataset_fn(ctx: tf.distribute.InputContext, kind: str, batch: int) -> tf.data.Dataset:
    """Return an endless dataset of batches. The rows of one element are repeated.

    Args:
        ctx: context of the pipeline.
        kind: one of _KINDS.
        batch: rows of a batch.
    """
    import tensorflow as tf

    size = ctx.get_per_replica_batch_size(batch)
    ids = tf.range(size, dtype=tf.int64)
    columns: dict[str, Any] = {"id": ids}
    if kind == "tokens":
        columns["tokens"] = _integers(size * _TOKENS, (size, _TOKENS))
    elif kind == "strings":
        letters = [f"{number:0512d}" for number in range(size)]
        columns["text"] = tf.constant(letters)
    elif kind == "columns":
        for number in range(8):
            columns[f"column{number}"] = _integers(size * 512, (size, 512))
    elif kind == "ragged":
        lengths = 64 + tf.range(size) % 129
        values = _integers(int(tf.reduce_sum(lengths)), (-1,))
        columns["tokens"] = tf.RaggedTensor.from_row_lengths(values, tf.cast(lengths, tf.int64))
    else:
        rows = tf.repeat(ids, 32)
        positions = tf.tile(tf.range(32, dtype=tf.int64) * 300, [size])
        indices = tf.stack([rows, positions], axis=1)
        values = tf.ones([32 * size], tf.float32)
        columns["features"] = tf.SparseTensor(indices, values, [size, 10_000])
    return tf.data.Dataset.from_tensors(columns).repeat()


def _integers(count: int, shape: tuple[int, ...]) -> tf.Tensor:
    import tensorflow as tf

    drawn = tf.random.stateless_uniform([count], (1, 2), maxval=50_000, dtype=tf.int32)
    return tf.reshape(drawn, shape)


def cases(quick: bool) -> Iterator[Case]:
    """Yield a case for each kind of rows."""
    for kind, name in _KINDS.items():
        if not quick or kind == "tokens":
            yield Case(
                "small rows",
                name,
                f"{__name__}:dataset_fn",
                {"kind": kind, "batch": BATCH},
                systems=(SERVICE, OURS, OURS_GRPC),
                unit="krows",
            )
