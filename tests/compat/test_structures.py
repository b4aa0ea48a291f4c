"""Elements of every structure reach every replica unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input import Input
from testing.compat.behaviour import Reference, behaviour
from testing.integration.datasets.element_types import Pair
from testing.integration.devices import CPUS

GUIDE = Reference.GUIDE
ROWS, BATCH = 22, 8
CALL = "`train.distribute(strategy, dataset_fn)`"
# TensorFlow warns in the same way.
pytestmark = pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding")


def rows(train: Input, make: Any) -> dict[int, Any]:
    """Return, for each row, the values that its replica received, as plain values."""

    def dataset_fn(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        numbers = tf.data.Dataset.range(ROWS).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        return numbers.map(lambda row: (row, make(row))).ragged_batch(
            ctx.get_per_replica_batch_size(BATCH)
        )

    strategy = tf.distribute.MirroredStrategy(CPUS)
    dist = train.distribute(strategy, dataset_fn)
    found: dict[int, Any] = {}
    signature = [dist.element_spec]
    step = tf.function(
        lambda batch: strategy.run(lambda x: x, args=(batch,)), input_signature=signature
    )
    for batch in dist:
        result = step(batch)
        for replica in range(2):
            numbers, values = tf.nest.map_structure(
                lambda leaf, replica=replica: strategy.experimental_local_results(leaf)[replica],
                result,
            )
            for at, row in enumerate(numbers.numpy().tolist()):
                assert row not in found
                found[row] = tf.nest.map_structure(lambda leaf, at=at: plain(leaf, at), values)
    assert set(found) == set(range(ROWS))
    return found


def plain(leaf: Any, at: int) -> Any:
    """Return row `at` of a component as lists."""
    if isinstance(leaf, tf.RaggedTensor):
        return leaf[at].numpy().tolist()
    if isinstance(leaf, tf.sparse.SparseTensor):
        return tf.sparse.to_dense(leaf).numpy()[at].tolist()
    return np.asarray(leaf[at]).tolist()


@behaviour(GUIDE, shows="elements that are nested dicts", call=CALL)
def test_dicts_arrive_unchanged(train: Input) -> None:
    found = rows(train, lambda row: {"a": row * 2, "b": {"c": tf.fill([2], row)}})
    assert found == {row: {"a": row * 2, "b": {"c": [row, row]}} for row in range(ROWS)}


@behaviour(GUIDE, shows="elements that are nested tuples", call=CALL)
def test_tuples_arrive_unchanged(train: Input) -> None:
    found = rows(train, lambda row: (row, (tf.strings.as_string(row), row % 2 == 0)))
    assert found == {row: (row, (str(row).encode(), row % 2 == 0)) for row in range(ROWS)}


@behaviour(GUIDE, shows="elements of type `NamedTuple`", call=CALL)
def test_named_tuples_keep_their_type(train: Input) -> None:
    found = rows(train, lambda row: Pair(row, -row))
    assert found == {row: Pair(row, -row) for row in range(ROWS)}
    assert {type(value).__name__ for value in found.values()} == {"Pair"}


@behaviour(GUIDE, shows="ragged components", call=CALL)
def test_ragged_components_arrive_unchanged(train: Input) -> None:
    found = rows(train, lambda row: {"words": tf.strings.as_string(tf.range(row % 4))})
    assert found == {
        row: {"words": [str(word).encode() for word in range(row % 4)]} for row in range(ROWS)
    }


@behaviour(GUIDE, shows="sparse components", call=CALL)
def test_sparse_components_arrive_unchanged(train: Input) -> None:
    def make(row: Any) -> Any:
        at = tf.stack([row % 3, tf.constant(4, tf.int64)])[tf.newaxis]
        return {"sparse": tf.sparse.SparseTensor(at, row[tf.newaxis] + 1, [3, 5])}

    found = rows(train, make)
    for row, value in found.items():
        expected = [[0] * 5 for _ in range(3)]
        expected[row % 3][4] = row + 1
        assert value == {"sparse": expected}
