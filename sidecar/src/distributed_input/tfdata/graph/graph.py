"""Datasets as graphs: serialize one, make one of a graph, and read what is in between.

A graph here is the GraphDef that TensorFlow itself makes of a dataset: constants and dataset
ops, functions in its library, and a `_Retval` node whose input is the dataset.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Iterator, MutableSequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from google.protobuf import message as proto_message
from tensorflow.python.framework import op_def_registry, tensor_util

from distributed_input.api.errors import DatasetFnError

GraphDef: TypeAlias = Any  # tf.compat.v1.GraphDef; TensorFlow has no types
NodeDef: TypeAlias = Any
FunctionDef: TypeAlias = Any

# Variables that functions change: shared by name, so every instance needs names of its own.
_MUTATES = frozenset(
    "AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate"
    " ResourceScatterAdd RngSkip RngReadAndSkip StatefulUniform StatefulUniformInt"
    " StatefulUniformFullInt StatefulStandardNormalV2 StatefulTruncatedNormal"
    " StatefulRandomBinomial".split()
)
_instances = itertools.count()


def serialize_raw(dataset: tf.data.Dataset) -> GraphDef:
    """The dataset's graph as TensorFlow gives it, lookup tables and variables by value.

    Raises:
      DatasetFnError: TensorFlow cannot serialize it.
    """
    policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    try:
        # What tf.data service uses; the public functions keep no external state.
        as_graph = dataset._as_serialized_graph  # noqa: SLF001
        graph = as_graph(strip_device_assignment=True, external_state_policy=policy)
    except tf.errors.OpError as error:
        raise DatasetFnError(
            f"this dataset cannot be sent to workers: {error.message}; move it to an entry point"
            " (package.module:function) in the workers' image"
        ) from error
    return tf.compat.v1.GraphDef.FromString(graph.numpy())


def instantiate(graph_def: GraphDef, element_spec: Any) -> tf.data.Dataset:
    """A dataset of a graph, which shares no state with any other in this process.

    Its functions live and die with it: nothing is registered with the process.

    Args:
      graph_def: as `canonical` gives it.
      element_spec: nested TypeSpecs of its elements.
    """
    graph_def, private = _with_private_variables(graph_def)
    with tf.device("CPU:0"):
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph_def.SerializeToString())
    dataset = tf.data.experimental.from_variant(variant, element_spec)
    if private:
        weakref.finalize(dataset, _destroy_variables, private).atexit = False
    return dataset


def _with_private_variables(graph_def: GraphDef) -> tuple[GraphDef, list[tuple[str, int, Any]]]:
    """The graph with variables of its own, if its functions change some; and those."""
    if not any(node.op in _MUTATES for f in graph_def.library.function for node in f.node_def):
        return graph_def, []
    instance = next(_instances)
    out = []
    graph_def = copy_of(graph_def)
    for node in graph_def.node:
        if node.op == "VarHandleOp":
            name = f"{node.attr['shared_name'].s.decode()}/{instance}"
            node.attr["shared_name"].s = name.encode()
            shape = tf.TensorShape(node.attr["shape"].shape)
            out.append((name, node.attr["dtype"].type, shape))
    return graph_def, out


def _destroy_variables(variables: list[tuple[str, int, Any]]) -> None:
    for name, dtype, shape in variables:
        with tf.device("CPU:0"):
            handle = tf.raw_ops.VarHandleOp(shared_name=name, dtype=dtype, shape=shape)
            tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


def copy_of(graph_def: GraphDef) -> GraphDef:
    """A graph of its own, for editing."""
    out = tf.compat.v1.GraphDef()
    out.CopyFrom(graph_def)
    return out


def retval(graph_def: GraphDef) -> NodeDef:
    """The node whose input is the dataset."""
    return next(node for node in graph_def.node if node.op == "_Retval")


def data_inputs(node: NodeDef) -> list[str]:
    """Names of the inputs that are no control inputs, with their output numbers."""
    return [name for name in node.input if not name.startswith("^")]


def source_of(name: str) -> str:
    """The node that an input names: `^a`, `a`, `a:1` and `a:output:0` are all of node a."""
    return name.lstrip("^").split(":", 1)[0]


def ancestors(nodes: dict[str, NodeDef], start: NodeDef) -> list[NodeDef]:
    """The nodes that `start` needs, and itself last; each after its inputs, in a fixed order."""
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
    """Nodes of a graph or of a function, by name."""
    return {node.name: node for node in nodes}


def function_refs(node: NodeDef) -> Iterator[Any]:
    """The NameAttrLists in a node's attributes, in a fixed order."""
    for key in sorted(node.attr):
        value = node.attr[key]
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func
        elif kind == "list":
            yield from value.list.func


@functools.lru_cache(maxsize=1024)
def op_def(name: str) -> Any:
    """TensorFlow's definition of an op, or None (of a function called as an op, say)."""
    return op_def_registry.get(name)


def const_value(node: NodeDef | None) -> Any:
    """The value of a constant of numbers, or None of anything else."""
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    dtype = tf.dtypes.as_dtype(tensor.dtype)
    if not (dtype.is_bool or dtype.is_integer or dtype.is_floating):
        return None
    return tensor_util.MakeNdarray(tensor)


def input_value(nodes: dict[str, NodeDef], node: NodeDef, index: int) -> Any:
    """The value of an input that is a constant of numbers, or None."""
    inputs = data_inputs(node)
    if not -len(inputs) <= index < len(inputs):
        return None
    return const_value(nodes.get(source_of(inputs[index])))


def add_const(nodes: MutableSequence[NodeDef], name: str, value: int) -> NodeDef:
    """Adds an int64 scalar to a graph or function."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = tf.int64.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(np.int64(value)))
    nodes.append(node)
    return node


def to_bytes(message: proto_message.Message) -> bytes:
    """The same bytes for equal messages."""
    return message.SerializeToString(deterministic=True)
