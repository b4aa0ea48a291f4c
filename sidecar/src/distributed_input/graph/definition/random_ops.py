"""Finds the random ops of a graph and their seeds.

There are two families: ops with attributes `seed` and `seed2`, and ops (mostly datasets) with
inputs of these names. Stateless random ops are functions of their inputs, so they are excluded.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import NodeDef


@functools.lru_cache(maxsize=1024)
def has_seed_attrs(op: str) -> bool:
    """Return whether an op has integer attributes `seed` and `seed2`."""
    definition = node_defs.op_def(op)
    if definition is None:
        return False
    found = {attr.name for attr in definition.attr if attr.type == "int"}
    return {"seed", "seed2"} <= found


@functools.lru_cache(maxsize=1024)
def seed_inputs(op: str) -> tuple[int, int] | None:
    """Return the indexes of the inputs `seed` and `seed2`, or None."""
    definition = node_defs.op_def(op)
    if definition is None:
        return None
    found: dict[str, int] = {}
    for i, argument in enumerate(definition.input_arg):
        if argument.number_attr or argument.type_list_attr:
            break  # the indexes of the later inputs are unknown
        if argument.type == tf.int64.as_datatype_enum:
            found[argument.name] = i
    return (found["seed"], found["seed2"]) if {"seed", "seed2"} <= set(found) else None


def attr_seeds(node: NodeDef) -> tuple[int, int]:
    """Return the seeds in the attributes of an op."""
    return node.attr["seed"].i, node.attr["seed2"].i


def input_seeds(nodes: dict[str, NodeDef], node: NodeDef) -> tuple[Any, Any]:
    """Return the seeds in the inputs of an op; None for a seed that is computed at run time."""
    found = seed_inputs(node.op)
    assert found is not None
    first, second = (_seed_value(nodes, node, index) for index in found)
    return first, second


def objects_of(nodes: dict[str, NodeDef], node: NodeDef) -> Iterator[str]:
    """Yield names of the seed generators and of the dataset object of a node of the graph.

    Two nodes with a common name are one object, which draws the same numbers for both.
    """
    for name in node.input:
        below = nodes.get(node_defs.source_of(name))
        if below is not None and below.op == "Const":
            for handle in below.attr["value"].tensor.resource_handle_val:
                yield f"handle:{handle.name}"
    if "metadata" in node.attr and node.attr["metadata"].s:
        yield f"dataset:{node.attr['metadata'].s!r}"


def is_unseeded(nodes: dict[str, NodeDef], node: NodeDef) -> bool:
    """Return whether a node is a random op whose seeds are both 0: TensorFlow's default."""
    if has_seed_attrs(node.op):
        return attr_seeds(node) == (0, 0)
    return seed_inputs(node.op) is not None and input_seeds(nodes, node) == (0, 0)


def _seed_value(nodes: dict[str, NodeDef], node: NodeDef, index: int) -> int | None:
    source = nodes.get(node_defs.source_of(node_defs.data_inputs(node)[index]))
    if source is not None and source.op == "SelectV2":
        # In functions, tf.data writes seed2 as where(both are 0, a constant, seed2).
        source = nodes.get(node_defs.source_of(node_defs.data_inputs(source)[2]))
    value = node_defs.const_value(source)
    return None if value is None else int(value)
