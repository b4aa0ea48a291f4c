"""Random ops are recognized, with their seeds."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from distributed_input.graph.definition import node_defs, random_ops
from distributed_input.graph.definition.canonical import serialize


@pytest.mark.parametrize(
    ("op", "has_attrs", "has_inputs"),
    [
        *((op, True, False) for op in ("RandomUniform", "RandomShuffle", "TruncatedNormal")),
        *((op, False, True) for op in ("ShuffleDatasetV3", "RandomDatasetV2")),
        *((op, False, False) for op in ("StatelessRandomUniformV2", "MapDataset", "no such op")),
    ],
)
def test_random_ops_are_found(op: str, has_attrs: bool, has_inputs: bool) -> None:
    assert random_ops.has_seed_attrs(op) is has_attrs
    assert (random_ops.seed_inputs(op) is not None) is has_inputs


def shuffle_of(seed: int | None) -> tuple[dict[str, Any], Any]:
    graph_def = serialize(tf.data.Dataset.range(9).shuffle(9, seed=seed))
    nodes = node_defs.by_name(graph_def.node)
    return nodes, next(node for node in graph_def.node if node.op.startswith("Shuffle"))


def test_the_seed_of_a_shuffle_is_read() -> None:
    assert random_ops.is_unseeded(*shuffle_of(None))
    nodes, node = shuffle_of(7)
    assert not random_ops.is_unseeded(nodes, node)
    assert 7 in random_ops.input_seeds(nodes, node)
