"""Replaces `batch(n, drop_remainder=True)` in a dataset that is split and batched again.

The flag would drop up to n - 1 rows at the end of every split, and all rows of a short split. The
job's `remainder: Drop` also gives batches of one size, and drops at most one batch per consumer.
So the flag is disabled in the graph if no later op of the dataset can depend on it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata.analysis.scopes import PASSES, kind
from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef

_BATCHES = (
    "BatchDatasetV2",
    "ParallelBatchDataset",
    "MapAndBatchDataset",
    "PaddedBatchDatasetV2",
)
# With one batch more, they still return each batch as it is.
_PASSES = PASSES | set("Shuffle Shard Take Skip Cache".split())
_REPEATS = frozenset(["Repeat", "ShuffleAndRepeat"])


def disable_drop_remainder(graph_def: GraphDef, in_repeats: bool = True) -> bool:
    """Disable drop_remainder, in place, if all later ops pass elements on without a change.

    Args:
      graph_def: the graph of a split.
      in_repeats: also if the batches are repeated: then each pass has the rows that the flag drops.

    Returns:
      Whether the flag was set and is now disabled.
    """
    nodes = node_defs.by_name(graph_def.node)
    node = nodes[node_defs.source_of(node_defs.retval(graph_def).input[0])]
    passed = []
    passes = _PASSES | _REPEATS if in_repeats else _PASSES
    while kind(node.op) in passes:
        passed.append(node)
        node = nodes[node_defs.source_of(node.input[0])]
    if node.op not in _BATCHES or not node_defs.input_value(nodes, node, -1):
        return False
    const = tf.compat.v1.NodeDef(name=f"{node.name}/keep_remainder", op="Const")
    const.attr["dtype"].type = tf.bool.as_datatype_enum
    const.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(False))
    graph_def.node.append(const)
    node.input[len(node_defs.data_inputs(node)) - 1] = const.name
    for changed in (node, *passed):
        for shape in changed.attr["output_shapes"].list.shape:
            if shape.dim:
                shape.dim[0].size = -1
    return True


def with_unknown_batch_size(spec: ElementSpec) -> ElementSpec:
    """Return the spec of batches with an unknown number of rows."""
    leaves: list[Any] = []
    for leaf in spec.leaves:
        leaves.append(replace(leaf, shape=(None, *leaf.shape[1:])) if leaf.shape else leaf)
    return ElementSpec(spec.structure, tuple(leaves))
