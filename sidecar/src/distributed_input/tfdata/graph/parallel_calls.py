"""The number of elements that the maps of a dataset produce at the same time."""

from __future__ import annotations

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef

# The input index of num_parallel_calls.
_MAPS = {"ParallelMapDataset": -1, "ParallelMapDatasetV2": -1, "MapAndBatchDataset": -2}


def parallel_calls(graph_def: GraphDef) -> int:
    """Return the largest `num_parallel_calls` of a dataset's maps.

    0 if no map has a number: AUTOTUNE uses about as many calls as there are CPUs.
    """
    nodes = node_defs.by_name(graph_def.node)
    found = [
        node_defs.input_value(nodes, node, _MAPS[node.op])
        for node in graph_def.node
        if node.op in _MAPS
    ]
    return max((int(value) for value in found if value is not None and value > 0), default=0)
