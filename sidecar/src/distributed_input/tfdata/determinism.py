"""Deterministic order: a split that runs again must produce the same rows in the same order."""

from __future__ import annotations

from distributed_input.tfdata.graph.node_defs import GraphDef


def force_determinism(graph_def: GraphDef) -> None:
    """Remove `deterministic=False` from the datasets of a graph, in place.

    Parallel ops then no longer return elements in the order in which they are ready, and lose that
    speed. This does not change `tf.data.Options`: the worker sets `deterministic = True` there.
    """
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            if "Dataset" not in node.op:
                continue
            if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
                node.attr["deterministic"].s = b"true"
            if "sloppy" in node.attr and node.attr["sloppy"].b:
                node.attr["sloppy"].b = False
