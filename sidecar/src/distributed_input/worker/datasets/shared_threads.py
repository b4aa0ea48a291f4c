"""Threads that all open splits of a dataset share.

With `options.threading.private_threadpool_size`, TensorFlow starts that many threads for each
iterator. A trainer has one iterator, but a worker has one for each open split. If the functions of
the dataset call Python, hundreds of threads then wait for one interpreter: with 16 splits of 64
threads each, a row took three times as much CPU as with 64 threads for all.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2

from distributed_input.tfdata.graph import serialization

_pools: weakref.WeakValueDictionary[tuple[str, int], _ThreadPool] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_names = itertools.count()


class _ThreadPool:
    """A thread pool of TensorFlow. It ends with the last dataset that runs on it.

    Args:
        threads: number of threads.
    """

    def __init__(self, threads: int) -> None:
        name = f"distributed_input_{next(_names)}"
        with tf.device("CPU:0"):
            self.handle = tf.raw_ops.ThreadPoolHandle(
                num_threads=threads,
                max_intra_op_parallelism=-1,  # no limit, as in a private pool
                display_name=name,
                shared_name=name,
            )
        weakref.finalize(self, _destroy, self.handle).atexit = False


def share_threads(dataset: tf.data.Dataset, dataset_id: str) -> tf.data.Dataset:
    """Return a dataset whose private threads are shared with other splits of the same dataset.

    Args:
        dataset: the dataset of a split. It is returned as it is if it has no private threads.
        dataset_id: id of the dataset that the splits belong to.
    """
    threads = options_of(dataset).threading_options.private_threadpool_size
    if threads <= 0:
        return dataset
    with _lock:
        pool = _pools.get((dataset_id, threads))
        if pool is None:
            pool = _pools[dataset_id, threads] = _ThreadPool(threads)
    shared = serialization.derive(dataset, tf.raw_ops.ThreadPoolDataset, thread_pool=pool.handle)
    shared._pool = pool  # noqa: SLF001 - an attribute that we add: the pool lives as long
    # The private pool has nothing to run. Without it, TensorFlow would use the number in `dataset`.
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return shared.with_options(options)


def options_of(dataset: tf.data.Dataset) -> Any:
    """Return the options of a dataset, as TensorFlow's Options message."""
    variant = tf.data.experimental.to_variant(dataset)
    serialized = tf.raw_ops.GetOptions(input_dataset=variant).numpy()
    return dataset_options_pb2.Options.FromString(serialized)


def _destroy(handle: tf.Tensor) -> None:
    with tf.device("CPU:0"):
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
