"""Rows of arrays that are gathered when they are batched.

`from_tensor_slices` makes a tensor for each row, which ops such as `shuffle` and `batch` then keep
and copy. If all ops in between only choose and order rows, they can do so with numbers of rows: the
map behind the batch gathers all its rows at once. The elements and their order are the same.
"""

from __future__ import annotations

from collections import Counter

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import PASSES, kind, main_scope
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef
from distributed_input.graph.definition.pushdown import can_slice

_BATCHES = ("Batch", "ParallelBatch")
_ORDERS = (PASSES - {"Rewrite"}) | {
    *("Repeat", "Shuffle", "ShuffleAndRepeat", "Shard", "Skip", "Take"),
}
"""Ops that choose and order elements, and do not look at them."""


def gather(graph_def: GraphDef) -> GraphDef:
    """Return a graph whose batches gather the rows of arrays, where that is possible.

    Returns the same graph if there is none. This is one of the last changes before a dataset is
    made: see `pushdown.push`.
    """
    out = node_defs.copy_of(graph_def)
    nodes = node_defs.by_name(out.node)
    used = Counter(
        node_defs.source_of(name) for node in out.node for name in node_defs.data_inputs(node)
    )
    batches = [node for node in main_scope(out).nodes.values() if kind(node.op) in _BATCHES]
    is_changed = False
    for batch in batches:
        chain = _between(nodes, used, batch)
        if chain:
            _change(out, batch, chain)
            is_changed = True
    return out if is_changed else graph_def


def _between(nodes: dict[str, NodeDef], used: Counter[str], batch: NodeDef) -> list[NodeDef]:
    """Return the ops before a batch up to `from_tensor_slices`, which comes last.

    [] if an op in between looks at elements, or if a second op reads its elements.
    """
    found: list[NodeDef] = []
    node = node_defs.input_node(nodes, batch)
    while node is not None and used[node.name] == 1:
        found.append(node)
        if kind(node.op) == "TensorSlice":
            return found if _can_gather(node) else []
        if kind(node.op) not in _ORDERS:
            return []
        node = node_defs.input_node(nodes, node)
    return []


def _can_gather(slices: NodeDef) -> bool:
    types = slices.attr["Toutput_types"].list.type
    return all(can_slice(tf.dtypes.as_dtype(one)) for one in types)


def _change(out: GraphDef, batch: NodeDef, chain: list[NodeDef]) -> None:
    """Make the ops of a chain work on numbers of rows, and put a map behind the batch."""
    *orders, slices = chain
    types = list(slices.attr["Toutput_types"].list.type)
    arrays = node_defs.data_inputs(slices)
    rows = _add_map(out, batch, types, arrays)
    _set_elements(rows)
    for node in orders:
        _set_elements(node)
    name = str(slices.name)
    slices.Clear()
    slices.name, slices.op = name, "RangeDataset"
    slices.input.extend(
        [
            node_defs.add_const(out.node, f"{name}/first", 0).name,
            _count(out, name, arrays[0], types[0]),
            node_defs.add_const(out.node, f"{name}/step", 1).name,
        ]
    )
    _set_elements(slices)


def _add_map(out: GraphDef, batch: NodeDef, types: list[int], arrays: list[str]) -> NodeDef:
    """Turn the node of a batch into a map of another node, which is returned: the batch."""
    below = out.node.add()
    below.CopyFrom(batch)
    below.name = f"{batch.name}/numbers"
    shapes = list(batch.attr["output_shapes"].list.shape)
    output_types = list(batch.attr["output_types"].list.type)
    name = str(batch.name)
    batch.Clear()
    batch.name, batch.op = name, "MapDataset"
    batch.input.extend([below.name, *arrays])
    batch.attr["f"].func.name = _add_function(out, name, types).signature.name
    batch.attr["Targuments"].list.type.extend(types)
    batch.attr["output_types"].list.type.extend(output_types)
    batch.attr["output_shapes"].list.shape.extend(shapes)
    batch.attr["use_inter_op_parallelism"].b = False
    batch.attr["preserve_cardinality"].b = True
    return below


def _add_function(out: GraphDef, name: str, types: list[int]) -> FunctionDef:
    """Add the function that returns the rows of arrays with given numbers."""
    made = function_pb2.FunctionDef()
    made.signature.name = "distributed_input_gather_" + "".join(
        one if one.isalnum() else "_" for one in name
    )
    made.signature.input_arg.add(name="numbers", type=tf.int64.as_datatype_enum)
    node_defs.add_const(made.node_def, "axis", 0)
    for index, dtype in enumerate(types):
        made.signature.input_arg.add(name=f"array_{index}", type=dtype)
        made.signature.output_arg.add(name=f"rows_{index}", type=dtype)
        node = made.node_def.add(name=f"gather_{index}", op="GatherV2")
        node.input.extend([f"array_{index}", "numbers", "axis:output:0"])
        node.attr["Tparams"].type = dtype
        node.attr["Tindices"].type = node.attr["Taxis"].type = tf.int64.as_datatype_enum
        node.attr["batch_dims"].i = 0
        made.ret[f"rows_{index}"] = f"gather_{index}:output:0"
    out.library.function.append(made)
    return made


def _count(out: GraphDef, name: str, array: str, dtype: int) -> str:
    """Return the name of the number of rows of an array."""
    shape = out.node.add(name=f"{name}/shape", op="Shape", input=[array])
    shape.attr["T"].type = dtype
    shape.attr["out_type"].type = tf.int64.as_datatype_enum
    first = node_defs.add_const(out.node, f"{name}/axis", 0)
    count = out.node.add(
        name=f"{name}/count", op="GatherV2", input=[shape.name, first.name, first.name]
    )
    for one in ("Tparams", "Tindices", "Taxis"):
        count.attr[one].type = tf.int64.as_datatype_enum
    count.attr["batch_dims"].i = 0
    return str(count.name)


def _set_elements(node: NodeDef) -> None:
    """Set the elements of a dataset to scalars of int64, or batches of them."""
    for name in ("output_types", "output_shapes"):
        node.attr[name].ClearField("value")
    node.attr["output_types"].list.type.append(tf.int64.as_datatype_enum)
    shape = node.attr["output_shapes"].list.shape.add()
    if kind(node.op) in _BATCHES:
        shape.dim.add(size=-1)
