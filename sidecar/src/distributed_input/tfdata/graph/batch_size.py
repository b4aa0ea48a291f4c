"""The rows in an element of a dataset that ends with a batch op.

A worker sends elements of another number of rows than a batch of the user. To batch a dataset
again copies each row once more. If the dataset's last op batches rows, the worker changes it.
"""

from __future__ import annotations

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef

_KEEPS = frozenset(["Identity", "PrefetchDataset", "OptionsDataset"])


def with_batch_size(graph_def: GraphDef, rows: int) -> GraphDef | None:
    """Return the graph of a split with `rows` rows in each element but the last, as a new graph.

    None if its last op does not batch rows, apart from ops that keep elements, or if the op drops
    the last rows.

    Args:
        graph_def: a graph whose elements are batches.
        rows: number of rows in an element.
    """
    nodes = node_defs.by_name(graph_def.node)
    node = nodes.get(node_defs.source_of(node_defs.retval(graph_def).input[0]))
    while node is not None and node.op in _KEEPS:
        node = nodes.get(node_defs.source_of(node.input[0]))
    if node is None or node.op != "BatchDatasetV2":
        return None
    drops = node_defs.input_value(nodes, node, 2)
    if drops is None or drops:
        return None
    out = node_defs.copy_of(graph_def)
    size = node_defs.add_const(out.node, f"{node.name}/rows", rows)
    node_defs.by_name(out.node)[node.name].input[1] = size.name
    return out
