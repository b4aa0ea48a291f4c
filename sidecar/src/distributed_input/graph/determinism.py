"""Deterministic order: a split that runs again must produce the same rows in the same order.

Random ops in functions become functions of the element. If an op is left whose result depends on
the order in which functions run, a replay would have other rows, and the dataset runs serially.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_input.graph.definition import node_defs, serialization
from distributed_input.graph.definition.datasets import PARALLEL, kind
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef
from distributed_input.graph.definition.random_ops import has_seed_attrs
from distributed_input.graph.random.element_keys import key_elements
from distributed_input.graph.user_code import is_library

# Python functions count as functions of their arguments: a replay is compared by its digests.
_PYTHON = "EagerPyFunc PyFunc"
_CALLS = "If While Case StatefulPartitionedCall"
# Nothing changes these tables and variables, or the op that does is found.
_READS = (
    "ReadVariableOp ResourceGather ResourceGatherNd VariableShape VarIsInitializedOp"
    " LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2 LookupTableExport"
    " LookupTableExportV2"
)
_OTHERS = (
    "Assert Print PrintV2 CheckNumerics CheckNumericsV2 Empty GuaranteeConst DeviceIndex"
    " StatelessRandomGetAlg DummySeedGenerator DummyMemoryCache DummyIterationCounter"
    " AnonymousSeedGenerator AnonymousMemoryCache"
)
_INDEPENDENT = frozenset(" ".join((_PYTHON, _CALLS, _READS, _OTHERS)).split())
_INDEPENDENT_KINDS = ("Dataset", "TensorArray")


@dataclass(frozen=True)
class OrderDependentOp:
    """An op whose result depends on the order of calls, in a function."""

    op: str
    function: str


def depends_on_order(op: str) -> bool:
    """Return whether the result of an op depends on which calls came before."""
    definition = node_defs.op_def(op)
    if definition is None:
        return True  # an op of another library
    if op in _INDEPENDENT or any(kind in op for kind in _INDEPENDENT_KINDS):
        return False
    return bool(definition.is_stateful) or has_seed_attrs(op)


def order_dependent_ops(graph_def: GraphDef) -> list[OrderDependentOp]:
    """Return the ops because of which the dataset has to run serially.

    A random op with a state of its own is one only in a function that runs for several elements
    at once. An op that changes a variable is always one: prefetching makes other ops run before or
    after it.
    """
    library = node_defs.library(graph_def)
    seen: set[tuple[str, bool]] = set()
    found: dict[OrderDependentOp, None] = {}

    def visit(node: NodeDef, function: str, parallel: bool) -> None:
        stateful = function and node.op not in library and depends_on_order(node.op)
        if stateful and (parallel or not has_seed_attrs(node.op)):
            found[OrderDependentOp(node.op, node_defs.readable_name(function))] = None
        parallel = parallel or kind(node.op) in PARALLEL
        for name in node_defs.called(node):
            if name in library and (name, parallel) not in seen:
                seen.add((name, parallel))
                for below in library[name].node_def:
                    visit(below, name, parallel)

    for node in graph_def.node:
        visit(node, "", parallel=False)
    return list(found)


def make_repeatable(graph_def: GraphDef) -> bool:
    """Make the rows of a graph independent of the order in which its functions run, in place.

    The graph is canonical and has the seeds of an epoch. Return whether the dataset must also run
    serially; see `run_serially`.
    """
    key_elements(graph_def)
    return bool(order_dependent_ops(graph_def))


def serial_ops(graph_def: GraphDef) -> list[OrderDependentOp]:
    """Return the ops because of which a dataset must run serially; the graph is not changed."""
    copied = node_defs.copy_of(graph_def)
    key_elements(copied)
    return order_dependent_ops(copied)


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


# The functions of a dataset in the process that built it. A graph that TensorFlow serialized has no
# lines of the user, and a dataset of a generator has no graph.


def lines_of(dataset: tf.data.Dataset) -> dict[str, str]:
    """Return the user's line "file:number" of the first call of each op in a dataset's functions.

    Ops without a known line are not included.
    """
    found: dict[str, str] = {}
    for graph in _graphs(dataset):
        for op in graph.get_operations():
            for frame in reversed(op.traceback or ()):
                if not is_library(frame.filename):
                    found.setdefault(op.type, f"{frame.filename}:{frame.lineno}")
                    break
    return found


def functions_of(dataset: tf.data.Dataset) -> list[Any]:
    """Return the functions of a dataset and of its inputs, as TensorFlow's objects.

    They do not hold the dataset. Python functions in its graph exist as long as these objects do.
    """
    return [function for one in inputs_of(dataset) for function in one._functions()]  # noqa: SLF001


def inputs_of(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    """Yield a dataset and all of its inputs, once each."""
    seen: set[int] = set()
    datasets = [dataset]
    while datasets:
        one = datasets.pop()
        if id(one) not in seen:
            seen.add(id(one))
            datasets += one._inputs()  # noqa: SLF001
            yield one


def depend_on_order(dataset: tf.data.Dataset) -> bool:
    """Return whether a function of a dataset has an op whose result depends on earlier calls."""
    return any(
        node.op not in library and node.op != "Placeholder" and depends_on_order(node.op)
        for whole in (graph.as_graph_def() for graph in _graphs(dataset))
        for library in [node_defs.library(whole)]
        for node in node_defs.all_nodes(whole)
    )


def _graphs(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yield the graphs of the functions of a dataset and of its inputs, with those they call."""
    seen: set[int] = set()
    graphs = [wrapper.function.graph for wrapper in functions_of(dataset)]
    while graphs:
        graph = graphs.pop()
        if id(graph) in seen:
            continue
        seen.add(id(graph))
        yield graph
        called = getattr(graph, "_functions", {}).values()
        graphs += [below.graph for below in called if getattr(below, "graph", None) is not None]
