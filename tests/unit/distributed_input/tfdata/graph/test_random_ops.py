"""Random ops are recognized, with their seeds."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from distributed_input.tfdata.graph import node_defs, random_ops
from distributed_input.tfdata.graph.canonical import serialize


@pytest.mark.parametrize("op", ["RandomUniform", "RandomShuffle", "TruncatedNormal"])
def test_ops_with_seed_attributes_are_found(op: str) -> None:
    assert random_ops.has_seed_attrs(op)
    assert random_ops.seed_inputs(op) is None


@pytest.mark.parametrize("op", ["ShuffleDatasetV3", "RandomDatasetV2"])
def test_ops_with_seed_inputs_are_found(op: str) -> None:
    assert not random_ops.has_seed_attrs(op)
    assert random_ops.seed_inputs(op) is not None


@pytest.mark.parametrize("op", ["StatelessRandomUniformV2", "MapDataset", "no such op"])
def test_other_ops_are_not_random(op: str) -> None:
    assert not random_ops.has_seed_attrs(op)
    assert random_ops.seed_inputs(op) is None


def shuffle_of(seed: int | None) -> tuple[dict[str, Any], Any]:
    graph_def = serialize(tf.data.Dataset.range(9).shuffle(9, seed=seed))
    nodes = node_defs.by_name(graph_def.node)
    return nodes, next(node for node in graph_def.node if node.op.startswith("Shuffle"))


def test_a_shuffle_without_a_seed_is_unseeded() -> None:
    nodes, node = shuffle_of(None)
    assert random_ops.is_unseeded(nodes, node)


def test_the_seed_of_a_shuffle_is_read() -> None:
    nodes, node = shuffle_of(7)
    assert not random_ops.is_unseeded(nodes, node)
    assert 7 in random_ops.input_seeds(nodes, node)
