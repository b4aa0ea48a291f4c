"""A dataset's elements have the requested number of rows, and the same order each time."""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph import native_ops
from distributed_input.graph.definition import canonical, node_defs, serialization
from distributed_input.graph.type_specs import from_tf
from distributed_input.rows.encode import make_encoder
from distributed_input.worker.datasets import split_iterator
from distributed_input.worker.datasets import split_iterator as module
from distributed_input.worker.datasets.iterator_state import identify
from distributed_input.worker.datasets.split_iterator import (
    SplitIterator,
    iterate,
    iterate_dataset,
    options_of,
    share_threads,
    with_options,
)

LIBRARY = native_ops.library  # `conftest` replaces it
ROW = from_tf(tf.TensorSpec([], tf.int64))


@pytest.mark.parametrize(
    ("batch_rows", "elements", "batched"),
    [(0, [0, 1, 2, 3, 4], False), (2, [[0, 1], [2, 3], [4]], True)],
)
def test_rows_are_batched_if_a_size_is_given(
    batch_rows: int, elements: list[object], batched: bool
) -> None:
    split = iterate_dataset(tf.data.Dataset.range(5), ROW, False, batch_rows, 2, "d")
    assert [element.numpy().tolist() for element in split.elements] == elements
    assert (split.batched, split.row) == (batched, ROW)


def ragged_batches(static: bool = False) -> tf.data.Dataset:
    return tf.data.Dataset.range(10).map(tf.range).ragged_batch(2, drop_remainder=static)


@pytest.mark.parametrize(
    ("batch_rows", "batch_size", "elements"),
    [(1, 2, 5), (4, 2, 3), (5, 2, 3), (100, 2, 1), (100, None, 5)],
)
@pytest.mark.parametrize("static", [False, True])
def test_batches_of_ragged_rows_are_joined_if_their_size_is_known(
    static: bool, batch_rows: int, batch_size: int | None, elements: int
) -> None:
    if static:  # its spec has the size
        batch_size, elements = None, min(elements, -(-5 // max(1, batch_rows // 2)))
    dataset = ragged_batches(static)
    row = from_tf(dataset.element_spec).unbatched()
    split = iterate_dataset(dataset, row, True, batch_rows, batch_size, "d")
    encode = make_encoder(row, True, split.leaves_of)
    rows = [encode(element)[0] for element in split.elements]
    assert (sum(rows), len(rows)) == (10, elements)


def test_ragged_batches_stay_as_they_are_without_a_size() -> None:
    dataset = ragged_batches()
    row = from_tf(dataset.element_spec).unbatched()
    split = iterate_dataset(dataset, row, True, 0, 2, "d")
    assert all(isinstance(element, tf.RaggedTensor) for element in split.elements)


def test_the_state_of_joined_batches_continues_after_an_element() -> None:
    def opened() -> SplitIterator:
        dataset = ragged_batches()
        row = from_tf(dataset.element_spec).unbatched()
        identity = identify(canonical.serialize(dataset), batched=True)
        return iterate_dataset(dataset, row, True, 4, 2, "d", identity=identity)

    whole, split = opened(), opened()
    expected = [part.numpy().tolist() for element in whole.elements for part in element]
    found = [part.numpy().tolist() for part in next(split.elements)]
    assert split.state is not None
    saved = split.state.save(1 << 20, 10.0)
    restored = opened()
    assert restored.state is not None
    restored.state.restore(saved)
    found += [part.numpy().tolist() for element in restored.elements for part in element]
    assert found == expected


@pytest.mark.parametrize("inline", [False, True])
def test_maps_of_a_worker_hold_an_element_for_each_cpu(
    monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    """TensorFlow would make them parallel, with a buffer as large as the thread pool."""
    made: list[tf.data.Dataset] = []

    def iterate(dataset: tf.data.Dataset) -> Iterator[Any]:
        made.append(dataset)
        return iter(dataset)

    monkeypatch.setattr(module, "iterate", iterate)
    monkeypatch.setattr(native_ops, "library", LIBRARY)
    dataset = ragged_batches()
    row = from_tf(dataset.element_spec).unbatched()
    identity = replace(identify(canonical.serialize(dataset), batched=True), inline=inline)
    iterate_dataset(dataset, row, True, 4, 2, "d", cpus=3, identity=identity)
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(made[0]))
    nodes = node_defs.by_name(tf.compat.v1.GraphDef.FromString(graph.numpy()).node)
    maps = [one for one in nodes.values() if "MapDataset" in one.op]
    own = maps[2:]  # behind those of `ragged_batches`
    calls = [
        node_defs.input_value(nodes, one, -1) for one in own if one.op == "ParallelMapDatasetV2"
    ]
    assert len(own) == 2 + (LIBRARY() is not None)
    assert calls == ([] if inline else [3] * len(own))


def test_the_order_is_fixed_even_if_the_dataset_allows_another() -> None:
    dataset = tf.data.Dataset.range(200).map(
        lambda row: row, num_parallel_calls=8, deterministic=None
    )
    options = tf.data.Options()
    options.deterministic = False
    split = iterate_dataset(dataset.with_options(options), ROW, False, 0, 1, "d")
    assert [int(row) for row in split.elements] == list(range(200))


def cpu_budget(dataset: tf.data.Dataset) -> int:
    return int(options_of(dataset).autotune_options.cpu_budget)


def test_autotune_counts_with_the_cpus_of_the_worker() -> None:
    dataset = tf.data.Dataset.range(5)
    assert [cpu_budget(with_options(dataset, cpus)) for cpus in (0, 3)] == [0, 3]


def test_a_dataset_keeps_its_own_number_of_cpus() -> None:
    options = tf.data.Options()
    options.autotune.cpu_budget = 7
    dataset = tf.data.Dataset.range(5).with_options(options).map(lambda row: row)
    sent = serialization.instantiate(canonical.serialize(dataset), dataset.element_spec)
    assert [cpu_budget(with_options(one, 3)) for one in (dataset, sent)] == [7, 7]


def test_the_thread_of_its_own_has_the_last_reference() -> None:
    """The garbage collector clears an iterator only after it has called `finalize`."""
    deleted_by: list[str] = []
    deleted = threading.Event()

    class Resource:
        def __del__(self) -> None:
            deleted_by.append(threading.current_thread().name)
            deleted.set()

    held, other = Resource(), Resource()
    module._unused.put(held)
    module._unused.put(other)
    iterate(tf.data.Dataset.range(1))  # starts the thread
    del other
    assert deleted.wait(20)
    deleted.clear()
    del held  # as the garbage collector does
    assert deleted.wait(20)
    assert deleted_by == ["delete-iterators"] * 2


def test_an_iterator_is_deleted_by_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    iterate(tf.data.Dataset.range(1))  # starts the thread
    (thread,) = [one for one in threading.enumerate() if one.name == "delete-iterators"]
    assert thread.daemon
    unused: queue.SimpleQueue[tf.Tensor] = queue.SimpleQueue()
    monkeypatch.setattr(module, "_unused", unused)
    elements: Any = iterate(tf.data.Dataset.range(3))
    resource = elements._iterator_resource
    assert [int(element) for element in elements] == [0, 1, 2]
    assert unused.empty()
    del elements
    assert unused.get(timeout=20) is resource


def test_iterators_that_are_not_used_are_deleted() -> None:
    elements = iterate(tf.data.Dataset.range(3))
    variant = weakref.ref(elements)
    del elements
    assert variant() is None
    deadline = time.monotonic() + 20
    while not module._unused.empty() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert module._unused.empty()


THREADS, ROWS = 2, 8


class Calls:
    """Records the threads that a dataset's function runs on, of which two must run at once."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._both = threading.Barrier(THREADS)

    def __call__(self, row: np.int64) -> np.int64:
        self.threads.add(threading.get_ident())
        self._both.wait(10)
        return row

    def dataset(self) -> tf.data.Dataset:
        rows = tf.data.Dataset.range(ROWS).map(
            lambda row: tf.ensure_shape(tf.numpy_function(self, [row], tf.int64), []),
            num_parallel_calls=THREADS,
        )
        options = tf.data.Options()
        options.threading.private_threadpool_size = THREADS
        return rows.with_options(options)


@pytest.fixture(autouse=True)
def no_pool_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert not split_iterator._pools


def read(dataset: tf.data.Dataset) -> Any:
    """Return the iterator at its end, whose threads still exist."""
    iterator = iter(dataset)
    assert [int(row) for row in iterator] == list(range(ROWS))
    return iterator


def test_splits_of_one_dataset_share_threads() -> None:
    first, second = Calls(), Calls()
    iterators = [read(share_threads(one.dataset(), "d")) for one in (first, second)]
    assert len(first.threads) == THREADS
    assert first.threads == second.threads
    del iterators


def test_splits_of_other_datasets_have_other_threads() -> None:
    first, second = Calls(), Calls()
    iterators = [
        read(share_threads(one.dataset(), name)) for one, name in ((first, "d"), (second, "e"))
    ]
    assert not first.threads & second.threads
    del iterators


def test_the_other_options_stay() -> None:
    options = tf.data.Options()
    options.autotune.cpu_budget = 3
    shared = options_of(share_threads(Calls().dataset().with_options(options), "d"))
    assert shared.autotune_options.cpu_budget == 3
    assert shared.threading_options.private_threadpool_size == 1


def test_a_dataset_without_private_threads_stays_as_it_is() -> None:
    dataset = tf.data.Dataset.range(1)
    assert share_threads(dataset, "d") is dataset
