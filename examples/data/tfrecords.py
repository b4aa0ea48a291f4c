"""TFRecord files, in a folder or in object storage.

If the files are in a folder, `tf.data.TFRecordDataset` is faster: see ../digits/digits.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import tensorflow as tf

import storage

BATCH = 64  # rows of a global batch
FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def dataset_fn(ctx: tf.distribute.InputContext, url: str) -> Iterator[dict[str, Any]]:
    """Yield batches: {"id": int64 [b], "image": uint8 [b, 8, 8], "label": int64 [b]}."""
    batch = ctx.get_per_replica_batch_size(BATCH)
    files, paths = storage.files_of_split(ctx, url, ".tfrecord")
    return _batches(files, paths, batch)


def _batches(files: Any, paths: list[str], batch: int) -> Iterator[dict[str, Any]]:
    with storage.retryable():
        for path in paths:
            with files.open_input_stream(path, buffer_size=1 << 20) as file:
                records = _records(file)
                while serialized := list(islice(records, batch)):
                    rows = tf.io.parse_example(serialized, FEATURES)
                    rows["image"] = tf.reshape(
                        tf.io.decode_raw(rows["image"], tf.uint8), [-1, 8, 8]
                    )
                    yield {name: value.numpy() for name, value in rows.items()}


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yield the records: each has a length of 8 bytes, a CRC of 4, its bytes, and a CRC of 4."""
    while header := file.read(12):
        (size,) = struct.unpack("<Q", header[:8])
        record = file.read(size)
        if len(record) + len(file.read(4)) < size + 4:
            raise OSError("the file ends inside a record")
        yield record
