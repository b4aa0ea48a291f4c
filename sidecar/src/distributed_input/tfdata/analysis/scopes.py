"""Walks through a graph and its functions, from a dataset towards its sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef

_KIND = re.compile(r"^(?:Experimental)?(.*?)(?:Dataset)?(?:V\d+)?$")

PASSES = frozenset(
    "Prefetch Options MaxIntraOpParallelism PrivateThreadPool Model Optimize Finalize"
    " Rewrite".split()  # enumerate in a function has a RewriteDataset
)
"""Ops that return their input's elements, in its order."""


def kind(op: str) -> str:
    """Return what a dataset op does: that of ParallelMapDatasetV2 is ParallelMap."""
    found = _KIND.match(op)
    return found.group(1) if found is not None and "Dataset" in op else ""


class Scope:
    """The nodes of the graph or of a function, and the dataset that it returns.

    Args:
      nodes: the nodes.
      output: the name of the output.
      arguments: the names of the function's arguments.
    """

    def __init__(self, nodes: Any, output: str, arguments: Sequence[str] = ()) -> None:
        self.nodes = node_defs.by_name(nodes)
        self.arguments = arguments
        self.result = node_defs.source_of(output)
        while self.result in self.nodes and self.nodes[self.result].op == "Identity":
            self.result = node_defs.source_of(node_defs.data_inputs(self.nodes[self.result])[0])
        self.output = self.nodes.get(self.result)  # None: an argument

    def input(self, node: NodeDef, index: int = 0) -> NodeDef | None:
        """Return the node of an input, or None if it is an argument of the function."""
        inputs = node_defs.data_inputs(node)
        return self.nodes.get(node_defs.source_of(inputs[index])) if index < len(inputs) else None

    def datasets(self, node: NodeDef) -> list[NodeDef]:
        """Return the inputs of a node that are datasets."""
        found = (self.nodes.get(node_defs.source_of(name)) for name in node_defs.data_inputs(node))
        return [below for below in found if below is not None and "Dataset" in below.op]

    def chain(self) -> Iterator[NodeDef]:
        """Yield the dataset and its inputs, up to the first op without just one dataset."""
        node = self.output
        while node is not None:
            if node.op != "Identity":
                yield node
            below = [self.input(node)] if node.op == "Identity" else self.datasets(node)
            node = below[0] if len(below) == 1 else None


class GraphFunctions:
    """The functions of a graph."""

    def __init__(self, graph_def: GraphDef) -> None:
        self.library = {f.signature.name: f for f in graph_def.library.function}

    def dataset(self, node: NodeDef) -> Scope | None:
        """Return the function in which a node creates datasets; skip functions that only call."""
        for ref in node_defs.function_refs(node):
            function = self.library.get(ref.name)
            if function is None or not function.signature.output_arg:
                continue
            first = function.signature.output_arg[0].name
            arguments = [argument.name for argument in function.signature.input_arg]
            scope = Scope(function.node_def, function.ret[first], arguments)
            if scope.output is not None and "PartitionedCall" in scope.output.op:
                return self.dataset(scope.output) or scope
            return scope
        return None

    def nodes(self, nodes: Iterable[NodeDef]) -> Iterator[NodeDef]:
        """Yield nodes, and the nodes of the functions that they call."""
        seen: set[str] = set()
        queue = list(nodes)
        while queue:
            node = queue.pop()
            yield node
            names = [node.op, *(ref.name for ref in node_defs.function_refs(node))]
            for name in names:
                if name in self.library and name not in seen:
                    seen.add(name)
                    queue += self.library[name].node_def


def main_scope(graph_def: GraphDef) -> Scope:
    """Return the nodes of the graph and its dataset."""
    return Scope(graph_def.node, node_defs.retval(graph_def).input[0])
