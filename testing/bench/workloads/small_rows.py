"""Small rows, as language models read them: the costs of each row, not of each byte."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testing.bench.case import DATA_PLANES, SERVICE, Case

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
    "records": "520-byte records of a file, sharded after they are read",
}
_RECORDS = 100_000


def dataset_fn(ctx: tf.distribute.InputContext, kind: str, batch: int) -> tf.data.Dataset:
    """Return an endless dataset of batches. The rows of one element are repeated.

    Args:
        ctx: context of the pipeline.
        kind: one of _KINDS.
        batch: rows of a batch.
    """
    import tensorflow as tf

    size = ctx.get_per_replica_batch_size(batch)
    if kind == "records":
        records = tf.data.FixedLengthRecordDataset(_record_file(), 520).repeat()
        records = records.map(
            lambda record: tf.ensure_shape(tf.io.decode_raw(record, "int32"), [130])
        )
        return records.shard(ctx.num_input_pipelines, ctx.input_pipeline_id).batch(size)
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


def _record_file() -> str:
    """Return a file of random records."""
    path = Path(tempfile.gettempdir()) / f"di-bench-{_RECORDS}-records"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        part.write_bytes(random.Random(0).randbytes(520 * _RECORDS))
        part.replace(path)
    return str(path)


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
                systems=(SERVICE, *DATA_PLANES),
                unit="krows",
            )


def partition_cases(quick: bool) -> Iterator[Case]:
    """Yield cases with 8, 64 and 1,024 partitions: threads and memory of workers and sidecars."""
    for partitions in (8,) if quick else (8, 64, 1024):
        yield Case(
            "partitions",
            f"{partitions} partitions",
            f"{__name__}:dataset_fn",
            {"kind": "tokens", "batch": 8192},
            systems=tuple(DATA_PLANES),
            partitions=partitions,
            unit="krows",
        )
