from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.graph.definition import gathering
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import kind
from distributed_input.graph.definition.serialization import instantiate

_Op = Callable[[tf.data.Dataset], tf.data.Dataset]


def _both(dataset: tf.data.Dataset) -> tuple[list[Any], list[Any], bool]:
    """Return the elements with and without the rewrite, and whether it changed the graph."""
    graph = serialize(dataset)
    found = gathering.gather(graph)
    gathered = instantiate(found, dataset.element_spec)
    return _list(gathered), _list(instantiate(graph, dataset.element_spec)), found is not graph


def _list(dataset: tf.data.Dataset) -> list[Any]:
    return [
        [(part.dtype, part.shape, part.numpy().tolist()) for part in tf.nest.flatten(element)]
        for element in dataset
    ]


def _is_gathered(dataset: tf.data.Dataset) -> bool:
    gathered, rows, is_changed = _both(dataset)
    assert gathered == rows
    return is_changed


def _arrays(rows: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        {
            "x": np.arange(6 * rows, dtype=np.float32).reshape(rows, 2, 3),
            "name": np.array([f"row {i}" for i in range(rows)], object),
            "is": np.arange(rows) % 2 == 0,
            "half": tf.cast(tf.range(rows), tf.bfloat16),
        }
    )


_OPS: st.SearchStrategy[_Op] = st.one_of(
    st.integers(0, 9).map(lambda n: lambda it: it.take(n)),
    st.integers(0, 9).map(lambda n: lambda it: it.skip(n)),
    st.integers(1, 3).map(lambda n: lambda it: it.repeat(n)),
    st.integers(1, 9).map(lambda n: lambda it: it.shuffle(n, seed=7)),
    st.just(lambda it: it.shuffle(5, seed=1, reshuffle_each_iteration=False)),
    st.just(lambda it: it.prefetch(2)),
    st.integers(0, 2).map(lambda i: lambda it: it.shard(3, i)),
)


@pytest.mark.slow
@given(
    st.integers(0, 20),
    st.lists(_OPS, max_size=4),
    st.integers(1, 7),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_elements_and_their_order_stay(
    rows: int, ops: list[_Op], size: int, drops: bool, calls: int | None
) -> None:
    dataset = _arrays(rows)
    for op in ops:
        dataset = op(dataset)
    assert _is_gathered(dataset.batch(size, drops, num_parallel_calls=calls))


def test_the_ops_behind_the_batch_stay() -> None:
    rows = _arrays(9).shuffle(4, seed=1).batch(2).map(lambda it: it["x"] + 1).prefetch(1)
    assert _is_gathered(rows.unbatch().batch(3))


def test_every_batch_is_gathered() -> None:
    one, other = _arrays(9).batch(2), _arrays(7).shuffle(3, seed=2).batch(3)
    graph = gathering.gather(serialize(one.concatenate(other)))
    assert [kind(node.op) for node in graph.node].count("Map") == 2
    assert _is_gathered(one.concatenate(other))


def _shared() -> tf.data.Dataset:
    rows = _arrays(5).shuffle(3, seed=1)
    return tf.data.Dataset.zip((rows, rows)).batch(2)


@pytest.mark.parametrize(
    "build",
    [
        lambda: tf.data.Dataset.range(9).batch(2),
        lambda: _arrays(9).map(lambda it: it["x"]).batch(2),
        lambda: _arrays(9).filter(lambda it: it["is"]).batch(2),
        lambda: _arrays(9).cache().batch(2),
        lambda: _arrays(9),
        lambda: tf.data.Dataset.from_tensor_slices(np.zeros([4, 2], ml_dtypes.float8_e5m2)).batch(
            2
        ),
        _shared,
    ],
)
def test_other_datasets_stay(build: Callable[[], tf.data.Dataset]) -> None:
    graph = serialize(build())
    assert gathering.gather(graph) is graph


def test_a_source_that_two_ops_read_stays_as_it_is() -> None:
    rows = _arrays(5)
    graph = serialize(tf.data.Dataset.zip((rows.batch(2), rows.map(lambda it: it["x"]))))
    batch, mapped = (
        next(node for node in graph.node if kind(node.op) == one) for one in ("Batch", "Map")
    )
    mapped.input[0] = batch.input[0]
    assert gathering.gather(graph) is graph


def test_the_graph_that_was_given_does_not_change() -> None:
    graph = serialize(_arrays(5).batch(2))
    before = graph.SerializeToString(deterministic=True)
    assert gathering.gather(graph) is not graph
    assert graph.SerializeToString(deterministic=True) == before
