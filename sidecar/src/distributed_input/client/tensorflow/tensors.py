"""Units of shared memory as a tf.data.Dataset, without a copy where TensorFlow allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.client.reader import InputReader
from distributed_input.client.ring import Batch
from distributed_input.client.tensorflow import decode
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import heap

_SMALL_BYTES = 256 << 10  # of a unit


def static_rows(reader: InputReader) -> int | None:
    """Rows in every unit, where the job promises them."""
    opened = reader.opened
    fixed = opened.job.remainder in (types_pb2.DROP, types_pb2.PAD)
    return opened.unit_rows if fixed and opened.unit_rows else None


def element_spec(reader: InputReader, spec: ElementSpec, whole: bool) -> Any:
    """The (nested) TypeSpec of a unit."""
    return decode.element_spec(spec, not whole, static_rows(reader))


def as_dataset(reader: InputReader, spec: ElementSpec, whole: bool) -> tf.data.Dataset:
    """A dataset whose every iteration is an epoch, and whose elements are units."""
    rows = static_rows(reader)
    unit_bytes = reader.opened.unit_rows * sum(c.row_bytes or 0 for c in spec.columns)
    if _is_plain(spec) and 0 < unit_bytes < _SMALL_BYTES:
        dataset = _small_units(reader, spec, rows)
    else:
        dataset = _large_units(reader, spec, whole, rows)
    if reader.opened.job.infinite:
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
    options = tf.data.Options()
    # It is this process's share already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def _large_units(
    reader: InputReader, spec: ElementSpec, whole: bool, rows: int | None
) -> tf.data.Dataset:
    """Each unit through Python by itself, its memory read in place."""

    def generate() -> Iterator[tuple[Any, ...]]:
        heap.keep_freed_memory()
        for batch in reader.units():
            values = decode.components(spec, None if whole else batch.rows, batch.buffers)
            del batch  # neither may hold memory while the next one is awaited
            yield values
            del values

    signature = decode.signature(spec, not whole, rows)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    return dataset.map(lambda *parts: decode.pack(spec, parts, not whole, rows))


def _small_units(reader: InputReader, spec: ElementSpec, rows: int | None) -> tf.data.Dataset:
    """Several units through Python at once, copied together and cut again in C++.

    An element costs some 200 microseconds of Python: more than copying a small unit twice.
    """

    def generate() -> Iterator[tuple[Any, ...]]:
        # From 2.21 on TensorFlow's generator sets M_TRIM_THRESHOLD to 128 KiB when it starts, for
        # the whole process: without this every larger tensor is mapped anew, ours or not.
        heap.keep_freed_memory()
        for burst in reader.bursts():
            for alike in _runs_of_equal_rows(burst):
                stacked = [
                    np.concatenate(parts) for parts in zip(*(b.buffers for b in alike), strict=True)
                ]
                total = sum(batch.rows for batch in alike)
                yield (np.int64(len(alike)), *decode.components(spec, total, stacked))

    signature = decode.signature(spec, True, None)
    count = tf.TensorSpec([], tf.int64)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=(count, *signature))

    def cut(units: tf.Tensor, *parts: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(tuple(_cut(part, units) for part in parts))

    dataset = dataset.flat_map(cut)
    return dataset.map(lambda *parts: decode.pack(spec, parts, True, rows))


def _is_plain(spec: ElementSpec) -> bool:
    """All leaves are dense numbers of known shape."""
    return spec.is_static and not any(leaf.is_string for leaf in spec.leaves)


def _runs_of_equal_rows(burst: list[Batch]) -> Iterator[list[Batch]]:
    """Consecutive units of as many rows: an epoch's last may have fewer."""
    for _, alike in itertools.groupby(burst, key=lambda batch: batch.rows):
        yield list(alike)


def _cut(part: tf.Tensor, units: tf.Tensor) -> tf.Tensor:
    """[units * rows, ...] -> [units, rows, ...]."""
    shape = tf.shape(part, tf.int64)
    cut = tf.reshape(part, tf.concat([[units, shape[0] // units], shape[1:]], 0))
    return tf.ensure_shape(cut, [None, None, *part.shape[1:]])
