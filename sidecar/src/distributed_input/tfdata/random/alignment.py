"""Random ops that must have the same numbers, because branches of a dataset are zipped."""

from __future__ import annotations

from typing import Any

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef
from distributed_input.tfdata.graph.random_ops import input_seeds, objects_of, seed_inputs


def aligned(graph_def: GraphDef, own: frozenset[str]) -> set[str]:
    """Return the random ops of the graph that must have the same numbers as a shared one.

    They are the same object, or have equal seeds in two branches of the graph, such as images and
    labels that are zipped. If a shared op with equal seeds comes before an op, its seeds are used
    in two steps of one branch, and the second may differ.
    """
    nodes = node_defs.by_name(graph_def.node)
    draws = [node for node in graph_def.node if seed_inputs(node.op) is not None]
    before = {it.name: {one.name for one in node_defs.ancestors(nodes, it)} for it in draws}
    shared = [node for node in draws if node.name not in own]
    found: set[str] = set()
    for node in draws:
        equal = [
            it for it in shared if it.op == node.op and _seeds(nodes, it) == _seeds(nodes, node)
        ]
        is_second = any(it.name in before[node.name] for it in equal)
        objects = set(objects_of(nodes, node))
        is_same = any(not objects.isdisjoint(objects_of(nodes, it)) for it in shared)
        if is_same or (equal and not is_second):
            found.add(node.name)
    return found


def _seeds(nodes: dict[str, NodeDef], node: NodeDef) -> tuple[Any, Any] | str:
    seeds = input_seeds(nodes, node)
    return node.name if seeds == (0, 0) or None in seeds else seeds
