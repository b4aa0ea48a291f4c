"""Walks through a graph and its functions, from a dataset towards its sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.dataset_ops import kind
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef


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

    def tail(self, kinds: Collection[str]) -> tuple[list[NodeDef], NodeDef | None]:
        """Return the last ops, as long as they are of these kinds, and the op before them.

        The last op comes first. There is no op before them if they have several inputs.
        """
        passed: list[NodeDef] = []
        for node in self.chain():
            if kind(node.op) not in kinds:
                return passed, node
            passed.append(node)
        return passed, None


class GraphFunctions:
    """The functions of a graph."""

    def __init__(self, graph_def: GraphDef) -> None:
        self.library = node_defs.library(graph_def)

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

    def nodes(self, nodes: Iterable[NodeDef]) -> list[NodeDef]:
        """Return nodes, and the nodes of the functions that they call."""
        return node_defs.with_called(self.library, nodes)


def main_scope(graph_def: GraphDef) -> Scope:
    """Return the nodes of the graph and its dataset."""
    return Scope(graph_def.node, node_defs.retval(graph_def).input[0])
