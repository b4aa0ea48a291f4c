"""Datasets whose function gets a key for each element.

The keys are a dataset of random numbers, zipped with the input. TensorFlow pairs them one element
at a time, in the order of the input, also if it then calls the function for several elements at
once. A dataset that is repeated gets other keys in each repetition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.datasets import FILTERS, FLATTENS, MAPS, kind
from distributed_input.tfdata.graph.node_defs import FunctionDef, NodeDef

_PER_ELEMENT = MAPS | FLATTENS | {"MapAndBatch"}
"""Datasets that call one function for each element of their first input."""
_SELECTING = FILTERS | {"TakeWhile"}
"""Datasets that return the elements of their first input for which a function is true."""
_INT64 = tf.int64.as_datatype_enum
_ZIP = "/element_keys/zip"
DROPS_KEY = "distributed_input_drop_key_"
"""The names of the functions of `drop_keys` begin with it."""


def has_keys(node: NodeDef) -> bool:
    """Return whether a node zips elements with their keys, which are its second input."""
    return node.op == "ZipDataset" and node.name.endswith(_ZIP)


def takes_keys(node: NodeDef) -> bool:
    """Return whether a dataset op calls one function for each element of its first input."""
    return kind(node.op) in _PER_ELEMENT | _SELECTING


def captures(node: NodeDef) -> int:
    """Return the number of values that a dataset op passes to its function besides elements."""
    return len(node.attr["Targuments"].list.type)


def add_keys(
    nodes: Any, node: NodeDef, types: Sequence[int], seeds: Sequence[str], in_function: bool
) -> None:
    """Zip the input of a dataset op with keys, in place.

    The function of the op must take the key after the components of an element, which have these
    types. `seeds` are references to the two seeds of the keys.
    """
    name = f"{node.name}/element_keys"
    handle, output = (":handle:0", ":output:0") if in_function else ("", "")

    def add(op: str, part: str, inputs: Sequence[str]) -> NodeDef:
        return nodes.add(op=op, name=f"{name}/{part}", input=inputs)

    def add_const(part: str, value: Any, dtype: Any) -> str:
        return str(node_defs.add_const(nodes, f"{name}/{part}", value, dtype).name) + output

    generator = add("DummySeedGenerator", "generator", ())
    numbers = add("RandomDatasetV2", "numbers", (*seeds, generator.name + handle))
    numbers.attr["rerandomize_each_iteration"].b = True
    _describe(numbers, [_INT64], [_shape([])])
    size = add_const("size", 2, tf.int64)
    whole = add_const("whole", True, tf.bool)
    pairs = add("BatchDatasetV2", "pairs", (numbers.name + handle, size, whole))
    pairs.attr["parallel_copy"].b = False
    _describe(pairs, [_INT64], [_shape([2])])
    source = node_defs.data_inputs(node)[0]
    both = add("ZipDataset", "zip", (source, pairs.name + handle))
    both.attr["N"].i = 2
    _describe(both, [*types, _INT64], [*_shapes(nodes, source, len(types)), _shape([2])])
    node.input[0] = both.name + handle


def drop_keys(
    nodes: Any, node: NodeDef, types: Sequence[int], in_function: bool
) -> FunctionDef | None:
    """Remove the keys from the elements of a dataset op that returns those of its input, in place.

    The op becomes a map of a copy of itself. Return the function of the map, which belongs into the
    library; None if the op returns no keys.
    """
    if kind(node.op) not in _SELECTING:
        return None
    selecting = nodes.add()
    selecting.CopyFrom(node)
    selecting.name = f"{node.name}/element_keys/selected"
    shapes = list(selecting.attr["output_shapes"].list.shape)
    for attribute in ("output_types", "output_shapes"):
        selecting.attr[attribute].Clear()
    _describe(selecting, [*types, _INT64], [*shapes, _shape([2])])
    function = function_pb2.FunctionDef()
    function.signature.name = DROPS_KEY + "_".join(map(str, types))
    for number, dtype in enumerate((*types, _INT64)):
        function.signature.input_arg.add(name=f"component{number}", type=dtype)
    for number, dtype in enumerate(types):
        function.signature.output_arg.add(name=f"result{number}", type=dtype)
        function.ret[f"result{number}"] = f"component{number}"
    node.op = "MapDataset"
    node.input[:] = [selecting.name + (":handle:0" if in_function else "")]
    node.attr.clear()
    node.attr["f"].func.name = function.signature.name
    node.attr["Targuments"].list.SetInParent()
    node.attr["use_inter_op_parallelism"].b = False
    node.attr["preserve_cardinality"].b = True
    _describe(node, types, shapes)
    return function


def _shapes(nodes: Any, source: str, count: int) -> list[Any]:
    found = node_defs.by_name(nodes).get(node_defs.source_of(source))
    known = list(found.attr["output_shapes"].list.shape) if found is not None else []
    return known if len(known) == count else [_shape(None)] * count


def _shape(dimensions: Sequence[int] | None) -> Any:
    return tf.TensorShape(dimensions).as_proto()


def _describe(node: NodeDef, types: Sequence[int], shapes: Sequence[Any]) -> None:
    node.attr["output_types"].list.type.extend(types)
    node.attr["output_shapes"].list.shape.extend(shapes)
    node.attr["metadata"].s = b""
