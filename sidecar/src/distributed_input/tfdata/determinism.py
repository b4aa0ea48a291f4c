"""Order kept whatever the user allows: a split that runs again must make the same rows."""

from __future__ import annotations

from distributed_input.tfdata.graph.node_defs import GraphDef


def force_determinism(graph_def: GraphDef) -> None:
    """Takes `deterministic=False` back from the datasets of a graph, in place.

    It costs what parallel ops gain by giving elements in the order in which they are ready. Options
    are left to whoever runs the dataset: `tf.data.Options.deterministic = True` wins there.
    """
    for nodes in (graph_def.node, *(f.node_def for f in graph_def.library.function)):
        for node in nodes:
            if "Dataset" not in node.op:
                continue
            if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
                node.attr["deterministic"].s = b"true"
            if "sloppy" in node.attr and node.attr["sloppy"].b:
                node.attr["sloppy"].b = False
