"""Functions that read and edit the nodes of a GraphDef."""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableSequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from google.protobuf import message as proto_message
from tensorflow.python.framework import op_def_registry, tensor_util

GraphDef: TypeAlias = Any  # tf.compat.v1.GraphDef; TensorFlow has no types
NodeDef: TypeAlias = Any
FunctionDef: TypeAlias = Any

_VARIANT = tf.variant.as_datatype_enum
PYTHON_OPS = frozenset(["PyFunc", "PyFuncStateless", "EagerPyFunc"])
"""The ops that call Python functions of the user."""
PRIVATE = "_distributed_input_private"
"""An attribute of a variable whose value differs between datasets that use its name."""


def copy_of(graph_def: GraphDef) -> GraphDef:
    """Return a copy of a graph, for editing."""
    out = tf.compat.v1.GraphDef()
    out.CopyFrom(graph_def)
    return out


def uses_python(graph_def: GraphDef) -> bool:
    """Return whether a graph calls functions of this process."""
    scopes = (graph_def.node, *(function.node_def for function in graph_def.library.function))
    return any(node.op in PYTHON_OPS for nodes in scopes for node in nodes)


def retval(graph_def: GraphDef) -> NodeDef:
    """Return the node whose input is the dataset."""
    return next(node for node in graph_def.node if node.op == "_Retval")


def data_inputs(node: NodeDef) -> list[str]:
    """Return the names of the inputs without control inputs, with their output numbers."""
    return [name for name in node.input if not name.startswith("^")]


def source_of(name: str) -> str:
    """Return the node name of an input: that of `^a`, `a`, `a:1` and `a:output:0` is a."""
    return name.lstrip("^").split(":", 1)[0]


def ancestors(nodes: dict[str, NodeDef], start: NodeDef) -> list[NodeDef]:
    """Return the nodes that `start` depends on, then `start`; inputs first, in a fixed order."""
    done: set[str] = set()
    out: list[NodeDef] = []
    stack: list[tuple[NodeDef, bool]] = [(start, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            out.append(node)
            continue
        if node.name in done:
            continue
        done.add(node.name)
        stack.append((node, True))
        for name in reversed(node.input):
            below = nodes.get(source_of(name))  # None: an argument of a function
            if below is not None and below.name not in done:
                stack.append((below, False))
    return out


def by_name(nodes: Any) -> dict[str, NodeDef]:
    """Return the nodes of a graph or of a function by name."""
    return {node.name: node for node in nodes}


def function_refs(node: NodeDef) -> Iterator[Any]:
    """Yield the NameAttrLists in a node's attributes, in a fixed order."""
    for key in sorted(node.attr):
        value = node.attr[key]
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func
        elif kind == "list":
            yield from value.list.func


@functools.lru_cache(maxsize=1024)
def op_def(name: str) -> Any:
    """Return TensorFlow's definition of an op, or None, for example for a function."""
    return op_def_registry.get(name)


@functools.lru_cache(maxsize=1024)
def _returns_variant(op: str) -> bool:
    definition = op_def(op)
    return definition is not None and any(it.type == _VARIANT for it in definition.output_arg)


def is_dataset(node: NodeDef) -> bool:
    """Return whether a node is a dataset, or calls a function that returns one."""
    types = node.attr["Tout"].list.type if "Tout" in node.attr else ()
    return _returns_variant(node.op) or _VARIANT in types


def const_value(node: NodeDef | None) -> Any:
    """Return the value of a constant of numbers, or None for other nodes."""
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    dtype = tf.dtypes.as_dtype(tensor.dtype)
    if not (dtype.is_bool or dtype.is_integer or dtype.is_floating):
        return None
    return tensor_util.MakeNdarray(tensor)


def input_value(nodes: dict[str, NodeDef], node: NodeDef, index: int) -> Any:
    """Return the value of an input that is a constant of numbers, or None."""
    inputs = data_inputs(node)
    if not -len(inputs) <= index < len(inputs):
        return None
    return const_value(nodes.get(source_of(inputs[index])))


def add_const(nodes: MutableSequence[NodeDef], name: str, value: int) -> NodeDef:
    """Add an int64 scalar to a graph or function, and return its node."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = tf.int64.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(np.int64(value)))
    nodes.append(node)
    return node


def to_bytes(message: proto_message.Message) -> bytes:
    """Serialize a message; equal messages give equal bytes."""
    return message.SerializeToString(deterministic=True)
