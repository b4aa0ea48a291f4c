"""Finds the ops of a graph whose results depend on the order in which functions run.

`element_keys` replaces most of them. If one is left in a function that runs for several elements
at once, a replay would produce other rows, and the dataset has to run serially.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.dataset_ops import PARALLEL, kind
from distributed_input.tfdata.graph.function_names import readable_name
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef
from distributed_input.tfdata.graph.random_ops import has_seed_attrs

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
    """An op whose result depends on the order of calls.

    Attributes:
      op: the op.
      function: the name of the function that contains it.
    """

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


def find(graph_def: GraphDef) -> list[OrderDependentOp]:
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
            found[OrderDependentOp(node.op, readable_name(function))] = None
        parallel = parallel or kind(node.op) in PARALLEL
        for name in node_defs.called(node):
            if name in library and (name, parallel) not in seen:
                seen.add((name, parallel))
                for below in library[name].node_def:
                    visit(below, name, parallel)

    for node in graph_def.node:
        visit(node, "", parallel=False)
    return list(found)
