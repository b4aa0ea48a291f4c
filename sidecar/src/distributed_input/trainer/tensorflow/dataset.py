"""Units of shared memory as a tf.data.Dataset, without a copy if TensorFlow allows it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.link.trainer.slots import Batch
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import heap
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.tensorflow import decode

_SMALL_BYTES = 256 << 10  # the size of a unit


def leading(consumer: Consumer) -> decode.Leading:
    """Return the leading dimension of every unit; () if units are whole elements."""
    opened = consumer.opened
    if not opened.unit_rows:
        return ()
    return (opened.unit_rows if opened.job.remainder in (types_pb2.DROP, types_pb2.PAD) else None,)


def as_dataset(consumer: Consumer) -> tf.data.Dataset:
    """Return a dataset of the units of an open job; each iteration reads one epoch."""
    spec = consumer.spec
    unit_bytes = consumer.opened.unit_rows * sum(c.row_bytes or 0 for c in spec.columns)
    if _is_fixed_size(spec) and 0 < unit_bytes < _SMALL_BYTES:
        dataset = _small_units(consumer, spec)
    else:
        dataset = _large_units(consumer, spec)
    if consumer.opened.job.infinite:
        dataset = dataset.repeat()  # for its cardinality; one without rows ends all the same
    options = tf.data.Options()
    # The dataset is already this process's share.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def _large_units(consumer: Consumer, spec: ElementSpec) -> tf.data.Dataset:
    """Pass each unit through Python on its own, without a copy."""
    dims = leading(consumer)

    def generate() -> Iterator[tuple[Any, ...]]:
        heap.keep_freed_memory()
        yield from consumer.decoded(
            lambda batch: decode.components(spec, batch.rows if dims else None, batch.buffers),
            writable=True,
        )

    return decode.from_arrays(generate, spec, dims)


def _small_units(consumer: Consumer, spec: ElementSpec) -> tf.data.Dataset:
    """Pass several units through Python together, and split them again in C++.

    One element takes about 200 microseconds of Python: more than two copies of a small unit.
    """

    def generate() -> Iterator[tuple[Any, ...]]:
        # TensorFlow 2.21 and later set M_TRIM_THRESHOLD to 128 KiB for the whole process when the
        # generator starts. Without this call, malloc would map every larger tensor again.
        heap.keep_freed_memory()
        for burst in consumer.bursts():
            # An epoch's last unit may have fewer rows.
            groups = itertools.groupby(burst, key=lambda batch: batch.rows)
            copies = [_stack(spec, list(group)) for _, group in groups]
            del burst, groups  # do not hold its slots while the next one is awaited
            yield from copies

    return decode.from_arrays(generate, spec, leading(consumer), stacked=True)


def _is_fixed_size(spec: ElementSpec) -> bool:
    """Return whether all leaves are dense numbers of known shape."""
    return spec.is_static and not any(leaf.is_string for leaf in spec.leaves)


def _stack(spec: ElementSpec, units: list[Batch]) -> tuple[Any, ...]:
    """Return the arrays of units with the same number of rows, of shape [units, rows, ...]."""
    columns = [np.concatenate(parts) for parts in zip(*(u.buffers for u in units), strict=True)]
    count, rows = len(units), units[0].rows
    arrays = decode.components(spec, count * rows, columns)
    return tuple(one.reshape(count, rows, *one.shape[1:]) for one in arrays)
