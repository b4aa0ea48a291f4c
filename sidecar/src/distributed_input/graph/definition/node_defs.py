"""Functions that read and edit the nodes of a GraphDef."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from typing import Any, TypeAlias

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


def library(graph_def: GraphDef) -> dict[str, FunctionDef]:
    """Return the functions of a graph by name."""
    return {function.signature.name: function for function in graph_def.library.function}


def scopes(graph_def: GraphDef) -> dict[str, Any]:
    """Return the nodes of the graph, by "", and those of its functions, by their names."""
    functions = library(graph_def).items()
    return {"": graph_def.node, **{name: function.node_def for name, function in functions}}


def all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
    """Yield the nodes of a graph, then those of its functions."""
    return (node for nodes in scopes(graph_def).values() for node in nodes)


def uses_python(graph_def: GraphDef) -> bool:
    """Return whether a graph calls functions of this process."""
    return any(node.op in PYTHON_OPS for node in all_nodes(graph_def))


def readable_name(function: str) -> str:
    """Return the name of a function without TensorFlow's prefix and without counters."""
    return re.sub(r"^__inference_|(_keyed|_\d+)+$", "", function)


def retval(graph_def: GraphDef) -> NodeDef:
    """Return the node whose input is the dataset."""
    return next(node for node in graph_def.node if node.op == "_Retval")


def data_inputs(node: NodeDef) -> list[str]:
    """Return the names of the inputs without control inputs, with their output numbers."""
    return [name for name in node.input if not name.startswith("^")]


def control_inputs(node: NodeDef) -> list[str]:
    """Return the names of the control inputs."""
    return [name for name in node.input if name.startswith("^")]


def source_of(name: str) -> str:
    """Return the node name of an input: that of `^a`, `a`, `a:1` and `a:output:0` is a."""
    return name.lstrip("^").split(":", 1)[0]


def ancestors(nodes: Mapping[str, NodeDef], start: NodeDef) -> list[NodeDef]:
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


def called(node: NodeDef) -> list[str]:
    """Return the names of the functions that a node may call. An op may be a function."""
    return [node.op, *(ref.name for ref in function_refs(node))]


def called_functions(
    functions: Mapping[str, FunctionDef], nodes: Iterable[NodeDef]
) -> dict[str, FunctionDef]:
    """Return the functions that nodes call, and those that these call, in a fixed order."""
    found: dict[str, FunctionDef] = {}
    queue = list(nodes)
    for node in queue:  # it grows
        for name in called(node):
            if name in functions and name not in found:
                found[name] = functions[name]
                queue += functions[name].node_def
    return found


def with_called(functions: Mapping[str, FunctionDef], nodes: Iterable[NodeDef]) -> list[NodeDef]:
    """Return nodes, and the nodes of all functions that they call."""
    found = list(nodes)
    for function in called_functions(functions, found).values():
        found += function.node_def
    return found


def functions_with(
    functions: Mapping[str, FunctionDef], matches: Callable[[FunctionDef, NodeDef], bool]
) -> frozenset[str]:
    """Return the functions with a node that matches, and those that call such a function."""
    callers: dict[str, list[str]] = {}
    found = []
    for name, function in functions.items():
        for node in function.node_def:
            for below in called(node):
                callers.setdefault(below, []).append(name)
        if any(matches(function, node) for node in function.node_def):
            found.append(name)
    seen = set(found)
    for name in found:  # it grows
        found += (new := set(callers.get(name, ())) - seen)
        seen |= new
    return frozenset(seen)


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


def input_node(nodes: Mapping[str, NodeDef], node: NodeDef, index: int = 0) -> NodeDef | None:
    """Return the node of a data input; None if it is an argument of a function, or missing."""
    inputs = data_inputs(node)
    is_there = -len(inputs) <= index < len(inputs)
    return nodes.get(source_of(inputs[index])) if is_there else None


def input_value(nodes: Mapping[str, NodeDef], node: NodeDef, index: int) -> Any:
    """Return the value of an input that is a constant of numbers, or None."""
    return const_value(input_node(nodes, node, index))


def add_const(
    nodes: MutableSequence[NodeDef], name: str, value: Any, dtype: tf.DType = tf.int64
) -> NodeDef:
    """Add a constant to a graph or function, and return its node."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(value, dtype))
    nodes.append(node)
    return node


def to_bytes(message: proto_message.Message) -> bytes:
    """Serialize a message; equal messages give equal bytes."""
    return message.SerializeToString(deterministic=True)
