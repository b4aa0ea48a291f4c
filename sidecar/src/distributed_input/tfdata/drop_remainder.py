"""`batch(n, drop_remainder=True)` in a dataset that is split and whose rows are cut anew.

There it would lose up to n - 1 rows at the end of every split, all of them where splits are
short. What the user wants by it, batches of one size, the job's `remainder: drop` gives, and
loses no more than one batch a consumer. So the flag is taken out of the graph where nothing
behind the batch can have come to rely on it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef

_BATCHES = (
    "BatchDatasetV2",
    "ParallelBatchDataset",
    "MapAndBatchDataset",
    "PaddedBatchDatasetV2",
)
_PASSES = re.compile(
    r"^(Prefetch|Options|Repeat|Shuffle\w*|Shard|Take|Skip|Cache|AssertCardinality|Model|Optimize"
    r"|Finalize|MaxIntraOpParallelism|PrivateThreadPool)(Dataset)?(V\d)?$"
)


def disable_drop_remainder(graph_def: GraphDef) -> bool:
    """Turns drop_remainder off, in place, where only nodes follow that pass elements as they are.

    Returns:
      Whether there was one to turn off.
    """
    nodes = node_defs.by_name(graph_def.node)
    node = nodes[node_defs.source_of(node_defs.retval(graph_def).input[0])]
    passed = []
    while _PASSES.match(node.op):
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
    """The spec of batches whose number of rows is not known."""
    leaves: list[Any] = []
    for leaf in spec.leaves:
        leaves.append(replace(leaf, shape=(None, *leaf.shape[1:])) if leaf.shape else leaf)
    return ElementSpec(spec.structure, tuple(leaves))
