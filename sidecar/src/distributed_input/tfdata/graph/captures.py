"""Finds the variables that functions of a graph capture, through all calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import FunctionDef, GraphDef, NodeDef

# The number of inputs before the function's arguments.
_CALLS = {
    "PartitionedCall": 0,
    "StatefulPartitionedCall": 0,
    "While": 0,
    "StatelessWhile": 0,
    "If": 1,
    "StatelessIf": 1,
    "Case": 1,
    "StatelessCase": 1,
}


class Captures:
    """Maps the arguments of a graph's functions to the graph's variables."""

    def __init__(self, graph_def: GraphDef) -> None:
        self._library = {f.signature.name: f for f in graph_def.library.function}
        self._main = node_defs.by_name(graph_def.node)
        self._callers: dict[str, list[tuple[str, NodeDef]]] = {}
        scopes: list[tuple[str, Any]] = [("", graph_def.node)]
        scopes += [(name, function.node_def) for name, function in self._library.items()]
        for scope, nodes in scopes:
            for node in nodes:
                for ref in node_defs.function_refs(node):
                    self._callers.setdefault(ref.name, []).append((scope, node))

    def variables(self, function: FunctionDef, argument: str) -> set[str]:
        """Return the names of the VarHandleOps that an argument may be; empty if unknown."""
        return set(self._variables(function.signature.name, argument, frozenset()))

    def _variables(self, name: str, argument: str, seen: frozenset[str]) -> Iterator[str]:
        arguments = [it.name for it in self._library[name].signature.input_arg]
        if name in seen or argument not in arguments:
            return
        for scope, node in self._callers.get(name, []):
            at = _input_of(node, arguments.index(argument), len(arguments))
            inputs = node_defs.data_inputs(node)
            if at is None or at >= len(inputs):
                continue
            nodes = node_defs.by_name(self._library[scope].node_def) if scope else self._main
            source = node_defs.source_of(inputs[at])
            while source in nodes and nodes[source].op == "Identity":
                source = node_defs.source_of(nodes[source].input[0])
            if source in nodes:
                if not scope and nodes[source].op == "VarHandleOp":
                    yield source
            elif scope:
                yield from self._variables(scope, source, seen | {name})


def _input_of(node: NodeDef, argument: int, arguments: int) -> int | None:
    """Return the input index of a function's argument in a node that calls the function."""
    if node.op in _CALLS:
        return _CALLS[node.op] + argument
    definition = node_defs.op_def(node.op)
    at = 0
    for it in definition.input_arg if definition is not None else ():
        size = 1
        if it.type_list_attr:
            size = len(node.attr[it.type_list_attr].list.type)
        elif it.number_attr:
            size = node.attr[it.number_attr].i
        if it.name == "other_arguments":  # the captures are the last arguments
            captured = argument - (arguments - size)
            return at + captured if captured >= 0 else None
        at += size
    return None
