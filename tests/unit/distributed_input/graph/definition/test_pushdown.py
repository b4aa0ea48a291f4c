from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.graph.definition import node_defs, pushdown
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import kind
from distributed_input.graph.definition.serialization import instantiate

_Op = Callable[[tf.data.Dataset], tf.data.Dataset]
_MAX = 2**63 - 1


def _both(dataset: tf.data.Dataset) -> tuple[list[Any], list[Any], set[str]]:
    """Return the elements with and without the rewrite, and the kinds of ops that are left."""
    graph_def = pushdown.push(serialize(dataset))
    pushed = instantiate(graph_def, dataset.element_spec)
    kinds = {kind(node.op) for node in graph_def.node} - {""}
    return _list(pushed), _list(dataset), kinds


def _list(dataset: tf.data.Dataset) -> list[Any]:
    return [
        tf.nest.map_structure(lambda one: np.asarray(one.numpy()).tolist(), it) for it in dataset
    ]


def _is_pushed(dataset: tf.data.Dataset) -> bool:
    pushed, all_rows, kinds = _both(dataset)
    assert pushed == all_rows
    return "Shard" not in kinds


_SOURCES = st.one_of(
    st.builds(
        tf.data.Dataset.range,
        st.integers(-20, 20),
        st.integers(-20, 20),
        st.integers(-7, 7).filter(bool),
    ),
    st.integers(1, 20).map(lambda n: tf.data.Dataset.from_tensor_slices(tf.range(n))),
    st.integers(1, 20).map(
        lambda n: tf.data.Dataset.from_tensor_slices(
            (np.arange(2 * n).reshape(n, 2), [f"row {i}" for i in range(n)])
        )
    ),
)
_OPS: st.SearchStrategy[_Op] = st.one_of(
    st.integers(0, 9).map(lambda n: lambda it: it.take(n)),
    st.just(lambda it: it.take(-1)),
    st.integers(0, 9).map(lambda n: lambda it: it.skip(n)),
    st.just(lambda it: it.skip(-1)),
    st.just(lambda it: it.prefetch(2)),
    st.just(lambda it: it.enumerate()),
    st.just(lambda it: it.map(lambda *row: (*row, tf.constant(3)))),
    st.just(lambda it: tf.data.Dataset.zip((it, tf.data.Dataset.range(5, 25)))),
    st.just(lambda it: tf.data.Dataset.zip((it, it.skip(1)))),
    st.tuples(st.integers(1, 5), st.integers(0, 4)).map(
        lambda at: lambda it: it.shard(at[0], at[1] % at[0])
    ),
    # These are not pushed.
    st.just(lambda it: it.shuffle(3, 1, reshuffle_each_iteration=False)),
    st.just(lambda it: it.repeat(2)),
    st.just(lambda it: it.cache()),
    st.just(lambda it: it.concatenate(it)),
)


@pytest.mark.slow
@given(_SOURCES, st.lists(_OPS, max_size=5), st.integers(1, 5), st.integers(0, 4))
def test_the_elements_and_their_order_are_those_of_the_shard(
    source: tf.data.Dataset, ops: list[_Op], num: int, index: int
) -> None:
    for op in ops:
        source = op(source)
    pushed, all_rows, _ = _both(source.shard(num, index % num))
    assert pushed == all_rows


def _with_options(it: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    return it.with_options(options)


@pytest.mark.parametrize(
    "op",
    [
        lambda it: it,
        lambda it: it.prefetch(1),
        _with_options,
        lambda it: it.enumerate(),
        lambda it: it.take(7).skip(2),
        lambda it: it.shard(2, 1),
        lambda it: tf.data.Dataset.zip((it, tf.data.Dataset.range(9))),
    ],
)
def test_a_shard_of_single_elements_is_pushed(op: _Op) -> None:
    assert _is_pushed(op(tf.data.Dataset.range(10)).shard(3, 1))
    assert _is_pushed(op(tf.data.Dataset.from_tensor_slices(tf.range(10))).shard(3, 1))


@pytest.mark.parametrize(
    "dataset",
    [
        tf.data.Dataset.range(10).shuffle(5, 1, reshuffle_each_iteration=False),
        tf.data.Dataset.range(10).repeat(2),
        tf.data.Dataset.range(10).cache(),
        tf.data.Dataset.range(10).batch(2),
        tf.data.Dataset.range(10).filter(lambda x: x != 3),
        tf.data.Dataset.range(10).map(lambda x: x + 1),
        tf.data.Dataset.zip((tf.data.Dataset.range(10), tf.data.Dataset.range(10).cache())),
        tf.data.Dataset.from_tensors(1),
        tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).map(tf.size),
        tf.data.Dataset.from_tensor_slices(tf.zeros([3] + [1] * 7)),
        tf.data.Dataset.from_tensor_slices(tf.cast([1, 2, 3], tf.dtypes.as_dtype("int4"))),
    ],
)
def test_other_shards_stay(dataset: tf.data.Dataset) -> None:
    assert not _is_pushed(dataset.shard(3, 1))


def test_a_shard_that_must_not_be_empty_stays() -> None:
    graph_def = serialize(tf.data.Dataset.range(2).shard(3, 1))
    for node in graph_def.node:
        if kind(node.op) == "Shard":
            node.attr["require_non_empty"].b = True
    assert pushdown.push(graph_def) is graph_def


@pytest.mark.parametrize("index", [-1, 3])
def test_a_shard_without_such_an_index_stays(index: int) -> None:
    graph_def = serialize(tf.data.Dataset.range(2).shard(3, 1))
    shard = next(node for node in graph_def.node if kind(node.op) == "Shard")
    shard.input[2] = node_defs.add_const(graph_def.node, "index", index).name
    assert pushdown.push(graph_def) is graph_def


@pytest.mark.parametrize(
    ("arguments", "is_pushed"),
    [
        ((_MAX - 20, _MAX), False),  # the last element and a step are too large
        ((_MAX - 3, _MAX), True),
        ((-_MAX + 20, -_MAX, -1), False),
        ((0, 11 * (_MAX // 12) + 1, _MAX // 12), False),
        ((0, 2 * (_MAX // 3) + 1, _MAX // 3), True),
        ((_MAX - 40, _MAX - 20), True),
    ],
)
def test_numbers_do_not_overflow(arguments: tuple[int, ...], is_pushed: bool) -> None:
    assert _is_pushed(tf.data.Dataset.range(*arguments).shard(5, 1)) == is_pushed


def test_a_source_without_end_begins_and_continues() -> None:
    dataset = tf.data.Dataset.range(5, _MAX).shard(1000, 7)
    graph_def = pushdown.push(serialize(dataset))
    assert _list(instantiate(graph_def, dataset.element_spec).take(3)) == [12, 1012, 2012]
    assert "ShardDataset" not in {node.op for node in graph_def.node}


def test_skipped_elements_are_not_made() -> None:
    dataset = tf.data.Dataset.range(2**50).shard(8, 3).skip(2**40).take(2)
    pushed = instantiate(pushdown.push(serialize(dataset)), dataset.element_spec)
    assert _list(pushed) == [3 + 8 * 2**40, 3 + 8 * (2**40 + 1)]


def test_an_array_is_not_copied_only_to_skip() -> None:
    graph_def = serialize(tf.data.Dataset.from_tensor_slices(tf.range(9)).skip(2))
    assert pushdown.push(graph_def) is graph_def


@pytest.mark.parametrize(
    "dtype",
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
    " complex64 complex128".split(),
)
def test_slices_have_all_types_of_numbers(dtype: str) -> None:
    values = tf.cast(tf.range(12) % 2, dtype)
    assert _is_pushed(tf.data.Dataset.from_tensor_slices(tf.reshape(values, [4, 3])).shard(3, 1))


def test_ops_that_other_ops_use_stay() -> None:
    source = tf.data.Dataset.range(9).prefetch(1)
    both = tf.data.Dataset.zip((source.shard(2, 1), source))
    pushed, all_rows, kinds = _both(both)
    assert pushed == all_rows
    assert "Shard" not in kinds


def test_a_shard_in_a_branch_is_pushed() -> None:
    part = tf.data.Dataset.range(9).shard(2, 1)
    dataset = (
        tf.data.Dataset.range(20, 25)
        .shuffle(3, 1, reshuffle_each_iteration=False)
        .concatenate(part)
    )
    assert _is_pushed(dataset)
