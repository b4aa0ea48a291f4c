"""Which ops of a graph are random, and what seeds they have.

Two families: ops with attributes `seed` and `seed2`, and ops (mostly datasets) with inputs of
these names. Stateless random ops are functions of their inputs and do not count.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import NodeDef


@functools.lru_cache(maxsize=1024)
def has_seed_attrs(op: str) -> bool:
    """It has integer attributes `seed` and `seed2`."""
    definition = node_defs.op_def(op)
    if definition is None:
        return False
    found = {attr.name for attr in definition.attr if attr.type == "int"}
    return {"seed", "seed2"} <= found


@functools.lru_cache(maxsize=1024)
def seed_inputs(op: str) -> tuple[int, int] | None:
    """Which inputs are `seed` and `seed2`, or None."""
    definition = node_defs.op_def(op)
    if definition is None:
        return None
    where: dict[str, int] = {}
    for i, argument in enumerate(definition.input_arg):
        if argument.number_attr or argument.type_list_attr:
            break  # from here on the numbers are not known
        if argument.type == tf.int64.as_datatype_enum:
            where[argument.name] = i
    return (where["seed"], where["seed2"]) if {"seed", "seed2"} <= set(where) else None


def attr_seeds(node: NodeDef) -> tuple[int, int]:
    """The seeds of an op with attributes for them."""
    return node.attr["seed"].i, node.attr["seed2"].i


def input_seeds(nodes: dict[str, NodeDef], node: NodeDef) -> tuple[Any, Any]:
    """The seeds of an op with inputs for them; None where only running the graph would tell."""
    where = seed_inputs(node.op)
    assert where is not None
    first, second = (_seed_value(nodes, node, index) for index in where)
    return first, second


def is_unseeded(nodes: dict[str, NodeDef], node: NodeDef) -> bool:
    """A random op whose seeds are both 0, which is TensorFlow's word for none."""
    if has_seed_attrs(node.op):
        return attr_seeds(node) == (0, 0)
    return seed_inputs(node.op) is not None and input_seeds(nodes, node) == (0, 0)


def _seed_value(nodes: dict[str, NodeDef], node: NodeDef, index: int) -> int | None:
    source = nodes.get(node_defs.source_of(node_defs.data_inputs(node)[index]))
    if source is not None and source.op == "SelectV2":
        # In functions tf.data writes seed2 as where(both are 0, a constant, seed2).
        source = nodes.get(node_defs.source_of(node_defs.data_inputs(source)[2]))
    value = node_defs.const_value(source)
    return None if value is None else int(value)
