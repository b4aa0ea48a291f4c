"""Batches and their padding are recognised, and changed only if no later op depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.graph.analysis.batches import (
    ElementBatches,
    disable_drop_remainder,
    find_batches,
    padding_values,
    remove_padding,
    with_unknown_batch_size,
)
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import main_scope
from distributed_input.graph.type_specs import from_tf, to_tf
from tests.unit.distributed_input.graph.graphcases import run

Data: TypeAlias = tf.data.Dataset


@pytest.mark.slow
@given(rows=st.integers(0, 20), size=st.integers(1, 8))
def test_all_rows_remain_in_the_batches(rows: int, size: int) -> None:
    dataset = Data.range(rows).batch(size, drop_remainder=True).prefetch(1)
    graph_def = serialize(dataset)
    assert disable_drop_remainder(graph_def)
    spec = to_tf(with_unknown_batch_size(from_tf(dataset.element_spec)))
    batches = run(graph_def, spec)
    assert [row for batch in batches for row in batch] == list(range(rows))
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Data.range(9).batch(4),
        lambda: Data.range(9).batch(4, drop_remainder=True).map(lambda rows: rows + 1),
        lambda: Data.range(9),
    ],
    ids=["not set", "a map depends on it", "no batch"],
)
def test_other_graphs_do_not_change(make: Callable[[], Data]) -> None:
    graph_def = serialize(make())
    before = graph_def.SerializeToString(deterministic=True)
    assert not disable_drop_remainder(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


IDS = Data.range(6)
PAIRS = Data.from_tensor_slices([[1, 2], [3, 4], [5, 6]])
ROWS = Data.range(1, 6).map(lambda x: {"a": tf.range(x), "b": tf.strings.as_string(tf.range(x))})
COMPLEX = Data.range(3).map(lambda x: tf.cast(tf.range(x), tf.complex128))
VALUES = {"a": tf.constant(-1, tf.int64), "b": "?"}


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: ROWS.padded_batch(2), (0, "")),
        (lambda: ROWS.padded_batch(2, padding_values=VALUES).shuffle(2).prefetch(1), (-1, "?")),
        (lambda: COMPLEX.padded_batch(2), ("0j",)),
        (lambda: COMPLEX.padded_batch(2, padding_values=tf.constant(1 - 2j)), ("(1-2j)",)),
        (lambda: ROWS.padded_batch(2).map(lambda x: x), ()),
        (lambda: ROWS.map(lambda x: x["a"][:1]).batch(2), ()),
    ],
)
def test_the_values_of_a_padded_batch_are_found(
    make: Callable[[], Data], values: tuple[Any, ...]
) -> None:
    assert padding_values(main_scope(serialize(make()))) == values


@pytest.mark.parametrize(
    ("make", "hidden_by"),
    [
        (lambda: ROWS.ragged_batch(2).unbatch(), ""),
        (lambda: ROWS.ragged_batch(2).unbatch().map(lambda row: row["a"][:1]), ""),
        (lambda: ROWS.ragged_batch(2).batch(2).unbatch(), "UnbatchDataset"),
        (
            lambda: ROWS.ragged_batch(2).unbatch().batch(1).map(lambda rows: rows["a"][0]),
            "MapDataset",
        ),
        (lambda: IDS.batch(1).map(lambda ids: ids + tf.reduce_sum(ids)), "MapDataset"),
        (lambda: PAIRS.unbatch().batch(2).map(lambda ids: ids + tf.reduce_sum(ids)), "MapDataset"),
        (lambda: ROWS.ragged_batch(2).take(1).map(lambda rows: rows["a"][0]), "MapDataset"),
    ],
)
def test_elements_may_be_batches_unless_each_batch_is_undone(
    make: Callable[[], Data], hidden_by: str
) -> None:
    assert find_batches(main_scope(serialize(make()))).hidden_by == hidden_by


FIXED = {"a": [9], "b": [9]}


@pytest.mark.parametrize(
    ("make", "size", "removed"),
    [
        (lambda: ROWS.padded_batch(2).prefetch(1), 2, True),
        (lambda: ROWS.padded_batch(2, padded_shapes=FIXED), 2, False),
        (lambda: ROWS.padded_batch(2, padded_shapes=FIXED).shuffle(2), 2, False),
        (lambda: ROWS.padded_batch(2, padded_shapes={"a": [9], "b": [None]}), None, False),
        (lambda: ROWS.padded_batch(2).shuffle(2), None, False),
    ],
)
def test_rows_are_batched_again_if_their_sizes_then_are_those_of_tensorflow(
    make: Callable[[], Data], size: int | None, removed: bool
) -> None:
    graph = serialize(make())
    assert find_batches(main_scope(graph)) == ElementBatches(True, size)
    assert remove_padding(graph) is removed
    if removed:
        spec = {"a": tf.TensorSpec([None], tf.int64), "b": tf.TensorSpec([None], tf.string)}
        assert [row["a"] for row in run(graph, spec)] == [list(range(x)) for x in range(1, 6)]
