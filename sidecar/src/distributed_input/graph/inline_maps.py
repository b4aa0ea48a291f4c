"""Run maps in the thread that computes their split.

A parallel map wakes another thread for each row, and TensorFlow's executor wakes more for the ops
of its function: about 20 microseconds of CPU, several times as much as many functions take. Where
more splits run at once than there are CPUs, that brings nothing. The rows are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from distributed_input.graph.analysis.row_functions import EXACT_FOR_FLOATS, MOVES
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import MAPS, kind
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef
from distributed_input.graph.determinism import depends_on_order

# Other rows are computed while these wait.
_WAITS = node_defs.PYTHON_OPS | frozenset("ReadFile MatchingFiles WriteFile".split())
# The executor that runs a function in one thread has no switches, to which TensorFlow lowers the
# first of these.
_CONTROL_FLOW = frozenset(
    "If StatelessIf While StatelessWhile Case StatelessCase For Switch RefSwitch _SwitchN Merge"
    " RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration LoopCond".split()
)
# Their results are the same in any number of threads, also if they are floats; see `_is_exact`.
_EXACT = (MOVES | EXACT_FOR_FLOATS) | frozenset(
    "Assert BroadcastTo Const EnsureShape Fill GatherNd IdentityN NoOp ParseExample"
    " ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseTensor PartitionedCall"
    " RaggedGather RaggedTensorFromVariant RaggedTensorToTensor RaggedTensorToVariant Rank"
    " ReadVariableOp ResourceGather Reverse Shape ShapeN Size Slice SparseReshape SparseToDense"
    " Split SplitV StatefulPartitionedCall StatelessRandomNormal StatelessRandomNormalV2"
    " StatelessRandomUniform StatelessRandomUniformV2 Where DecodeRaw DecodePaddedRaw".split()
)
_NO_FLOATS = frozenset(
    getattr(tf, name).as_datatype_enum
    for name in (
        "bool string int8 int16 int32 int64 uint8 uint16 uint32 uint64 resource variant".split()
    )
)
_PARALLEL_ONLY = ("deterministic", "use_unbounded_threadpool")


def can_inline(graph_def: GraphDef) -> bool:
    """Return whether a graph has maps, and none of them may wait or runs Python."""
    maps = [node for node in node_defs.all_nodes(graph_def) if kind(node.op) in MAPS]
    library = node_defs.library(graph_def)
    called = node_defs.with_called(library, maps)
    computes = (
        node.op in library or kind(node.op) in MAPS or _computes(node.op) for node in called
    )
    return bool(maps) and all(computes)


def inline_maps(graph_def: GraphDef) -> GraphDef:
    """Return the graph with maps that run in the thread of their iterator, as a new graph.

    `can_inline` must have returned True. Use `options` for the dataset.
    """
    out = node_defs.copy_of(graph_def)
    library = node_defs.library(out)
    for node in node_defs.all_nodes(out):
        if kind(node.op) in MAPS:
            below = node_defs.with_called(library, [node])
            one_thread = all(one.op in library or _is_exact(one) for one in below[1:])
            _inline(node, one_thread)
    return out


def options() -> tf.data.Options:
    """Return options with which TensorFlow does not make the maps parallel again."""
    found = tf.data.Options()
    found.experimental_optimization.map_and_batch_fusion = False
    found.experimental_optimization.map_parallelization = False
    return found


def _computes(op: str) -> bool:
    """Return whether an op does nothing but compute its results from its arguments."""
    return op not in _WAITS and "Dataset" not in op and not depends_on_order(op)


def _is_exact(node: NodeDef) -> bool:
    """Return whether an op has the same bytes in the executor that runs a function in one thread.

    In other executors, an op of a dataset's function uses one thread, unless options say otherwise.
    In that one it may use as many as there are CPUs, which add floats in another order.
    """
    return node.op in _EXACT or (node.op not in _CONTROL_FLOW and _is_without_floats(node))


def _is_without_floats(node: NodeDef) -> bool:
    definition = node_defs.op_def(node.op)
    defaults = {one.name: one.default_value for one in definition.attr}
    types: list[int] = []
    for one in (*definition.input_arg, *definition.output_arg):
        name = one.type_attr or one.type_list_attr
        value = node.attr[name] if name in node.attr else defaults.get(name)
        types += [one.type] if value is None else value.list.type or [value.type]
    return _NO_FLOATS.issuperset(types)


def _inline(node: NodeDef, one_thread: bool) -> None:
    if kind(node.op) == "ParallelMap":
        node.op = "MapDataset"
        inputs = node_defs.data_inputs(node)
        _set_inputs(node, [*inputs[:-1], *node_defs.control_inputs(node)])  # num_parallel_calls
        for name in _PARALLEL_ONLY:
            node.attr.pop(name, None)
    node.attr["use_inter_op_parallelism"].b = not one_thread


def _set_inputs(node: NodeDef, names: Sequence[str]) -> None:
    del node.input[:]
    node.input.extend(names)
