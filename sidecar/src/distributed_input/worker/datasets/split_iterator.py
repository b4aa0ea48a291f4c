"""The elements of one split, with their spec."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2

from distributed_input.graph import batching, native_ops
from distributed_input.graph.definition import serialization
from distributed_input.graph.native_ops import EncodedRows
from distributed_input.rows.elements import ElementSpec
from distributed_input.worker.datasets.boundary_files import BoundaryFiles
from distributed_input.worker.datasets.cache_files import CacheWriter, CachingIterator
from distributed_input.worker.datasets.iterator_state import SavableIterator, StateIdentity

_unused: queue.SimpleQueue[Any] = queue.SimpleQueue()
_remover_started = threading.Lock()
_CHECK_SECONDS = 0.1
_OWN_REFERENCES = 2  # of an object in a list whose reference count is asked for


@dataclass(frozen=True)
class SplitIterator:
    """The elements of one split, and the spec of a row.

    Attributes:
        batched: whether an element is a batch of rows.
        state: saves and restores the state of `elements`; None if they have none.
        parallel_calls: elements that the dataset's maps produce at the same time; 0: unknown.
        from_python: whether the dataset is a Python iterable. It may write each element to the same
            memory, and its elements stay as they are.
        is_indexed: whether its elements are read by index.
        skipped: number of rows of the split before `elements`.
        may_inline: whether the dataset's maps could run in its thread, and do not.
        leaves_of: from an element to its leaves; None: an element has the structure of the row.
        encode: from an element to its rows; None: see `rows.encode`. Then `leaves_of` is not used.
    """

    elements: Iterator[Any]
    row: ElementSpec
    batched: bool
    state: SavableIterator | None = None
    parallel_calls: int = 0
    from_python: bool = False
    is_indexed: bool = False
    skipped: int = 0
    may_inline: bool = False
    leaves_of: Callable[[Any], list[Any]] | None = None
    encode: Callable[[Any], EncodedRows] | None = None


def iterate_dataset(
    dataset: tf.data.Dataset,
    row: ElementSpec,
    batched: bool,
    batch_rows: int,
    batch_size: int | None,
    dataset_id: str,
    writers: Sequence[CacheWriter] = (),
    cpus: int = 0,
    identity: StateIdentity | None = None,
    skipped: int = 0,
    prefix: BoundaryFiles | None = None,
) -> SplitIterator:
    """Return the elements of a dataset in a fixed order, with one element prefetched.

    An element has at least `batch_rows` rows; 0 leaves the elements as they are. `batch_size` has
    the rows in a batch of the dataset, if its spec does not have them; None: unknown. A dataset
    without a graph has no identity. For the others, see `share_threads`, `with_options` and
    `SplitIterator`. What has skipped rows has no state: it would be that of another graph. Nor has
    what writes files: `prefix` are those of the dataset's boundary.
    """
    leaves_of, encode, specs = None, None, batching.component_specs(dataset)
    is_inline = identity is not None and identity.inline
    calls = 0 if is_inline else cpus or os.cpu_count() or 1
    if batch_rows:
        can_join = batching.can_join(row, dataset)
        if not (batched and can_join):
            dataset = batching.batch_rows(dataset, row, batched, batch_rows)
        specs = batching.component_specs(dataset)
        if can_join:
            size = batching.static_batch_size(dataset) or batch_size
            count = batch_rows // size if batched and size else 1
            dataset, leaves_of = batching.join(dataset, max(1, count), calls)
    batched = batched or bool(batch_rows)
    if batched:
        packed = native_ops.pack(dataset, row, specs, leaves_of, calls)
        dataset, encode = packed or (dataset, None)
    # TensorFlow produces the next element while the worker sends this one.
    dataset = share_threads(dataset.prefetch(1), dataset_id)
    elements: Any = iterate(with_options(dataset, cpus))
    if leaves_of is not None or encode is not None:
        elements = ComponentIterator(elements)
    state = None
    if writers:
        # Their names are private, so the iterator cannot continue in another process.
        elements = CachingIterator(elements, list(writers))
    elif identity is not None and not skipped and not (prefix is not None and prefix.is_new):
        elements = state = SavableIterator(elements, identity)
    if prefix is not None:
        elements = prefix.iterate(elements)
    parallel = identity.parallel_calls if identity is not None else 0
    may_inline = identity is not None and identity.may_inline
    return SplitIterator(
        elements,
        row,
        batched,
        state,
        parallel,
        skipped=skipped,
        may_inline=may_inline,
        leaves_of=leaves_of,
        encode=encode,
    )


class ComponentIterator:
    """The elements of a dataset of dense tensors, as lists of tensors.

    TensorFlow's own iterator needs several times as long for an element.
    """

    def __init__(self, iterator: Any) -> None:
        parts = tf.nest.flatten(iterator.element_spec)
        self._iterator = iterator
        self._iterator_resource = iterator._iterator_resource  # noqa: SLF001 - there is no public one
        self._types = [part.dtype for part in parts]
        self._shapes = [part.shape for part in parts]

    def __iter__(self) -> Iterator[list[tf.Tensor]]:
        return self

    def __next__(self) -> list[tf.Tensor]:
        try:
            element: list[tf.Tensor] = tf.raw_ops.IteratorGetNext(
                iterator=self._iterator_resource,
                output_types=self._types,
                output_shapes=self._shapes,
            )
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        return element


def with_options(dataset: tf.data.Dataset, cpus: int) -> tf.data.Dataset:
    """Return a dataset with a fixed order, and with a worker's CPUs for AUTOTUNE.

    A number of CPUs in its own options stays. 0 CPUs: those of the machine, of which a worker may
    have only a few.
    """
    options = tf.data.Options()
    options.deterministic = True  # a replay must produce the same rows
    if cpus and not options_of(dataset).autotune_options.cpu_budget:
        options.autotune.cpu_budget = cpus
    return dataset.with_options(options)


def iterate(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Return an iterator over a dataset, which a thread of its own deletes when it is not used.

    The deletion waits for the thread that tunes the dataset. TensorFlow 2.21 sometimes does not
    wake this thread, and it sleeps for up to a minute. The thread that drops the iterator may
    compute rows or hold a lock, and so it must not wait.
    """
    iterator: Any = iter(dataset)
    resource = iterator._iterator_resource  # noqa: SLF001 - there is no public one
    weakref.finalize(iterator, _unused.put, resource).atexit = False
    if _remover_started.acquire(blocking=False):
        threading.Thread(
            target=_delete, args=(_unused,), name="delete-iterators", daemon=True
        ).start()
    elements: Iterator[Any] = iterator
    return elements


def _delete(unused: queue.SimpleQueue[Any]) -> None:
    """Drop the last reference to each resource.

    The garbage collector, in whatever thread it runs, calls `finalize` before it clears the
    iterator. So the iterator may keep its resource for a while after it is here.
    """
    kept: list[Any] = []
    while True:
        with contextlib.suppress(queue.Empty):
            kept.append(unused.get(timeout=_CHECK_SECONDS if kept else None))
        for index in reversed(range(len(kept))):
            if sys.getrefcount(kept[index]) <= _OWN_REFERENCES:
                del kept[index]


_pools: weakref.WeakValueDictionary[tuple[str, int], _ThreadPool] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_names = itertools.count()


class _ThreadPool:
    """A thread pool of TensorFlow. It ends with the last dataset that runs on it."""

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

    With `options.threading.private_threadpool_size`, TensorFlow starts that many threads for each
    iterator, and a worker has one for each open split. If the functions of the dataset call Python,
    hundreds of threads then wait for one interpreter: with 16 splits of 64 threads each, a row took
    three times as much CPU as with 64 threads for all. A dataset without private threads is
    returned as it is.
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
