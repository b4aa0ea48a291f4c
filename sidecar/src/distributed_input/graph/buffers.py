"""The memory that the buffers of an open split hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from distributed_input.graph import sharding
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import kind
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

_LARGE = 1 << 16  # a slot of a shuffle buffer has 24 bytes, and TensorFlow allocates them all
_VARYING_BYTES = 64  # of a string or a variant


def bound_shuffles(graph_def: GraphDef) -> None:
    """Make large shuffle buffers as small as their input, in place. The order does not change.

    TensorFlow allocates a buffer in full for each open split, although a split has only a part of
    the rows for which the user chose its size.
    """
    for node, size in list(_shuffles(graph_def)):
        if size > _LARGE:
            elements = int(sharding.input_of(graph_def, node).cardinality())
            if 0 <= elements < size:
                name = f"{node.name}/bounded"
                node.input[1] = node_defs.add_const(graph_def.node, name, max(1, elements)).name


def held_bytes(
    graph_def: GraphDef, measure: Callable[[tf.data.Dataset], int | None] | None = None
) -> tuple[int, bool]:
    """Return about how many bytes the shuffle buffers of an open split hold, and whether at most.

    They may hold less if TensorFlow does not know how many elements the input of one has: the user
    may have chosen the size of the buffer for the whole dataset. `measure` returns the size of an
    element of a dataset whose elements have no fixed size; None: unknown. Then an unknown dimension
    counts as 1, and a string or a variant as 64 bytes.
    """
    total, at_most = 0, False
    for node, size in _shuffles(graph_def):
        source = sharding.input_of(graph_def, node)
        elements = int(source.cardinality())
        at_most = at_most or elements == tf.data.UNKNOWN_CARDINALITY
        held = min(size, elements) if elements >= 0 else size
        known, is_fixed = _spec_bytes(source.element_spec)
        found = None if is_fixed or measure is None else measure(source)
        total += held * (known if found is None else found)
    return total, at_most


def _shuffles(graph_def: GraphDef) -> Iterator[tuple[NodeDef, int]]:
    nodes = node_defs.by_name(graph_def.node)
    for node in graph_def.node:
        if kind(node.op) == "Shuffle":
            size = node_defs.input_value(nodes, node, 1)
            if size is not None and int(size) > 0:
                yield node, int(size)


def _spec_bytes(spec: Any) -> tuple[int, bool]:
    """Return the size of an element, and whether all elements have it."""
    total, is_fixed = 0, True
    for part in tf.nest.flatten(spec):
        shape = part.shape if isinstance(part, tf.TensorSpec) else tf.TensorShape(None)
        dtype = part.dtype if isinstance(part, tf.TensorSpec) else tf.string
        items = shape.num_elements()
        varies = dtype in (tf.string, tf.variant, tf.resource)
        is_fixed = is_fixed and items is not None and not varies
        total += (items or 1) * (_VARYING_BYTES if varies else dtype.size)
    return total, is_fixed
