"""Deterministic order: a split that runs again must produce the same rows in the same order."""

from __future__ import annotations

import tensorflow as tf

from distributed_input.tfdata.graph import node_defs, serialization
from distributed_input.tfdata.graph.node_defs import GraphDef
from distributed_input.tfdata.random import order_dependence
from distributed_input.tfdata.random.element_keys import key_elements
from distributed_input.tfdata.random.order_dependence import OrderDependentOp


def make_repeatable(graph_def: GraphDef) -> bool:
    """Make the rows of a graph independent of the order in which its functions run, in place.

    Args:
      graph_def: a canonical graph with the seeds of an epoch.

    Returns:
      Whether the dataset must also run serially; see `run_serially`.
    """
    key_elements(graph_def)
    return bool(order_dependence.find(graph_def))


def serial_ops(graph_def: GraphDef) -> list[OrderDependentOp]:
    """Return the ops because of which a dataset must run serially; the graph is not changed."""
    copied = node_defs.copy_of(graph_def)
    key_elements(copied)
    return order_dependence.find(copied)


def force_determinism(graph_def: GraphDef) -> None:
    """Remove `deterministic=False` from the datasets of a graph, in place.

    Parallel ops then no longer return elements in the order in which they are ready, and lose that
    speed. This does not change `tf.data.Options`: the worker sets `deterministic = True` there.
    """
    for node in node_defs.all_nodes(graph_def):
        if "Dataset" not in node.op:
            continue
        if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
            node.attr["deterministic"].s = b"true"
        if "sloppy" in node.attr and node.attr["sloppy"].b:
            node.attr["sloppy"].b = False


def run_serially(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset that calls functions with stateful ops for one element at a time.

    This is the part of TensorFlow's op determinism that concerns tf.data.
    """
    with tf.device("CPU:0"):
        return serialization.derive(
            dataset,
            tf.raw_ops.OptimizeDatasetV2,
            optimizations_enabled=["make_deterministic"],
            optimizations_disabled=[],
            optimizations_default=[],
        )
