"""Saving and restoring iterators of TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph.definition import canonical, node_defs, serialization
from distributed_input.graph.random.element_keys import key_elements
from distributed_input.graph.random.seeds import reseed
from distributed_input.graph.sequence_packing import pack
from distributed_input.worker.datasets import iterator_state as module
from distributed_input.worker.datasets.iterator_state import (
    SavableIterator,
    StateIdentity,
    identify,
)
from distributed_input.worker.datasets.split_iterator import share_threads
from distributed_input.worker.states.saved_state import StateError, StateTimeoutError

BYTES = 1 << 20
Build = Callable[[], tf.data.Dataset]


def files() -> tf.data.Dataset:
    inner = lambda i: tf.data.Dataset.range(i * 100, i * 100 + 60)  # noqa: E731
    return tf.data.Dataset.range(7).interleave(inner, cycle_length=3, num_parallel_calls=2)


def shuffled() -> tf.data.Dataset:
    return files().shuffle(50, seed=4).map(lambda x: x * 3, num_parallel_calls=tf.data.AUTOTUNE)


def random_map() -> tf.data.Dataset:
    noise = lambda x: tf.cast(x, tf.float32) + tf.random.uniform([])  # noqa: E731
    return files().shuffle(9).map(noise, num_parallel_calls=4)


def repeated() -> tf.data.Dataset:
    return (
        tf.data.Dataset.range(20)
        .shuffle(20)
        .repeat(4)
        .map(lambda x: x + tf.random.uniform([], maxval=100, dtype=tf.int64), num_parallel_calls=2)
    )


def filtered() -> tf.data.Dataset:
    return files().filter(lambda x: x % 3 > 0).take(100).concatenate(tf.data.Dataset.range(9))


def table() -> tf.data.Dataset:
    keys = tf.constant(["a", "b", "c"])
    values = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([5, 6, 7]))
    found = tf.lookup.StaticHashTable(values, -1)
    words = tf.data.Dataset.from_tensor_slices(["a", "b", "c", "d"]).repeat(20)
    return words.map(found.lookup, num_parallel_calls=2)


def windows() -> tf.data.Dataset:
    return tf.data.Dataset.range(90).window(4, shift=2).flat_map(lambda part: part.batch(4))


def ragged() -> tf.data.Dataset:
    return tf.data.Dataset.range(50).map(lambda n: tf.range(n % 5)).ragged_batch(3)


def packed() -> tf.data.Dataset:
    rows = tf.data.Dataset.range(400).map(lambda n: {"tokens": n + tf.range(n % 5)})
    return pack(rows, 8, open_sequences=3)


def cached() -> tf.data.Dataset:
    return tf.data.Dataset.range(15).map(lambda x: x + 1).cache().repeat(3)


def sampled() -> tf.data.Dataset:
    parts = [tf.data.Dataset.range(at, at + 40) for at in (0, 100)]
    return tf.data.Dataset.sample_from_datasets(parts, [0.3, 0.7], seed=5)


def scanned() -> tf.data.Dataset:
    return (
        files().scan(np.int64(0), lambda state, x: (state + x, state)).take_while(lambda x: x >= 0)
    )


def grouped() -> tf.data.Dataset:
    reduce = lambda key, part: part.batch(4)  # noqa: E731
    return files().group_by_window(lambda x: x % 3, reduce, window_size=4).padded_batch(2)


def zipped() -> tf.data.Dataset:
    pairs = tf.data.Dataset.zip((files(), tf.data.Dataset.random(seed=3)))
    return pairs.skip(2).shard(2, 1).enumerate().map(lambda n, pair: n + pair[0] + pair[1])


def unbatched() -> tf.data.Dataset:
    return files().batch(3).unbatch().unique().batch(4).rebatch(2)


def chained() -> tf.data.Dataset:
    return (
        tf.data.Dataset.range(20)
        .concatenate(files())
        .apply(tf.data.experimental.assert_cardinality(440))
    )


def own_threads() -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    return share_threads(shuffled().with_options(options), "dataset")


DATASETS = (
    *(shuffled, random_map, repeated, filtered, table, windows),
    *(ragged, cached, sampled, scanned, grouped, zipped, unbatched, chained),
)


def opened(build: Build) -> SavableIterator:
    """Return the iterator of a dataset as a worker opens it."""
    dataset = build()
    graph = reseed(canonical.serialize(dataset), 7, 2, 1)
    key_elements(graph)
    elements = serialization.instantiate(graph, dataset.element_spec).prefetch(1)
    return SavableIterator(iter(elements), identify(graph))


def rest_of(elements: Any) -> list[Any]:
    def plain(value: Any) -> Any:
        return value.to_list() if isinstance(value, tf.RaggedTensor) else np.asarray(value).tolist()

    return [plain(element) for element in elements]


@pytest.mark.parametrize("build", DATASETS)
@pytest.mark.parametrize("taken", [0, 1, 13])
def test_a_restored_iterator_continues_with_the_same_elements(build: Build, taken: int) -> None:
    first = opened(build)
    assert first.problem == ""
    for _ in range(taken):
        next(first)
    assert first.fetched == taken
    data = first.save(BYTES, 20.0)
    second = opened(build)
    assert second.key == first.key
    second.restore(data)
    expected = rest_of(first)
    assert len(expected) > 3
    assert rest_of(second) == expected


def test_a_dataset_with_shared_threads_continues() -> None:
    first, second = (SavableIterator(iter(own_threads()), StateIdentity(b"", "")) for _ in range(2))
    for _ in range(13):
        next(first)
    second.restore(first.save(BYTES, 20.0))
    expected = rest_of(first)
    assert len(expected) > 3
    assert rest_of(second) == expected


def test_a_state_at_the_end_has_no_elements() -> None:
    first = opened(filtered)
    rest_of(first)
    second = opened(filtered)
    second.restore(first.save(BYTES, 20.0))
    assert rest_of(second) == []


def test_states_have_other_keys_in_other_epochs_and_splits() -> None:
    graph = canonical.serialize(shuffled())
    arguments = [(7, 2, 1), (7, 3, 1), (8, 2, 1)]
    keys = {identify(reseed(graph, *each)).key for each in arguments}
    keys |= {identify(reseed(canonical.serialize(files()), 7, 2, 1)).key}
    keys |= {identify(reseed(graph, 7, 2, 1), "other rows").key}
    assert len(keys) == 5
    assert identify(reseed(graph, 7, 2, 1)).key in keys


def test_states_have_other_keys_in_other_versions_of_tensorflow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = canonical.serialize(shuffled())
    known = identify(graph).key
    monkeypatch.setattr(tf, "__version__", "2.99.0")
    assert identify(graph).key != known


def numpy_map() -> tf.data.Dataset:
    return files().map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))


def py_map() -> tf.data.Dataset:
    return files().map(lambda x: tf.py_function(lambda y: y, [x], tf.int64))


def variable_map() -> tf.data.Dataset:
    count = tf.Variable(0, dtype=tf.int64)
    return files().map(count.assign_add)


@pytest.mark.parametrize(
    ("build", "op"),
    [(numpy_map, "PyFunc"), (py_map, "EagerPyFunc"), (variable_map, "AssignAddVariableOp")],
)
def test_a_dataset_that_keeps_a_state_elsewhere_has_a_problem(build: Build, op: str) -> None:
    dataset = build()
    assert op in identify(canonical.serialize(dataset)).problem


def test_states_of_a_python_function_have_the_same_key_in_other_processes() -> None:
    one, other = (canonical.serialize(numpy_map()) for _ in range(2))
    assert one != other  # the token of the function
    before = node_defs.copy_of(one)
    assert identify(one).key == identify(other).key
    assert one == before


def test_a_random_op_that_keeps_its_own_state_is_a_problem() -> None:
    graph = canonical.serialize(random_map())
    assert "RandomUniform" in identify(graph).problem


@pytest.mark.parametrize(
    ("change", "op"),
    [
        (lambda data: data.snapshot("/nowhere"), "SnapshotDatasetV2"),
        (lambda data: data.ignore_errors(), "IgnoreErrorsDataset"),
    ],
    ids=["a state in files", "unknown"],
)
@pytest.mark.parametrize("in_function", [False, True])
def test_ops_that_are_not_known_to_restore_their_state_are_a_problem(
    change: Callable[[tf.data.Dataset], tf.data.Dataset], op: str, in_function: bool
) -> None:
    data = change(files())
    data = files().flat_map(lambda _: data) if in_function else data
    assert op in identify(canonical.serialize(data)).problem


def test_a_large_state_is_refused() -> None:
    iterator = opened(shuffled)
    next(iterator)
    with pytest.raises(StateError, match="more than 100 bytes"):
        iterator.save(100, 20.0)
    assert len(rest_of(iterator)) == 419


def test_a_state_of_another_dataset_is_refused_by_tensorflow() -> None:
    data = opened(filtered).save(BYTES, 20.0)
    with pytest.raises(StateError, match="restore"):
        opened(shuffled).restore(data)


def test_a_call_that_does_not_return_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(module, "_save", lambda *_: release.wait())
    with pytest.raises(StateTimeoutError):
        opened(files).save(BYTES, 0.05)
    release.set()


RANGE = tf.data.Dataset.range(8)


def double(row: tf.Tensor) -> tf.Tensor:
    return 2 * row


@pytest.mark.parametrize(
    ("dataset", "calls"),
    [
        (RANGE, 0),
        (RANGE.map(double), 0),
        (RANGE.map(double, num_parallel_calls=tf.data.AUTOTUNE), 0),
        (RANGE.map(double, num_parallel_calls=48), 48),
        (RANGE.map(double, 3).map(double, 12).map(double, 5).batch(2), 12),
    ],
    ids=["no map", "serial", "AUTOTUNE", "48", "the largest"],
)
def test_parallel_calls_are_read_from_the_graph(dataset: tf.data.Dataset, calls: int) -> None:
    assert identify(canonical.serialize(dataset)).parallel_calls == calls


def test_a_map_and_batch_has_parallel_calls() -> None:
    dataset = RANGE.apply(
        tf.data.experimental.map_and_batch(double, batch_size=4, num_parallel_calls=7)
    )
    assert identify(canonical.serialize(dataset)).parallel_calls == 7
