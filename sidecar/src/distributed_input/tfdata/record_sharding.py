"""Splits that select records: what comes before their shard op is the same dataset in all splits.

`dataset.shard(n, i)` after a reader or a function keeps one of n records. A worker can then read
the records once for all splits that it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from distributed_input.tfdata import sharding
from distributed_input.tfdata.analysis.batches import drops_remainder
from distributed_input.tfdata.analysis.graph_analysis import analyze
from distributed_input.tfdata.graph import caches, node_defs
from distributed_input.tfdata.graph.canonical import canonicalize
from distributed_input.tfdata.graph.datasets import PASSES, Scope, kind, main_scope
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef


@dataclass(frozen=True)
class RecordShard:
    """A split that keeps every n-th record of a source.

    `source` is canonical, and equal in all splits. `spec` has the specs of a record's components,
    with all sizes. `batches` is how many ops batch the split's records; None if other ops also
    follow the shard.
    """

    source: GraphDef
    spec: tuple[tf.TensorSpec, ...]
    batches: int | None


def find(graph_def: GraphDef, num_splits: int, split: int) -> RecordShard | None:
    """Return the record shard of a split; None if it has none, or if its source cannot be shared.

    A source with a cache or with another shard may differ between splits. So may one with Python
    functions, which may use the number of the split or of the epoch. Records of different sizes
    cannot be dealt in batches. The graph has the seeds of an epoch.
    """
    name = analyze(graph_def).record_shard
    nodes = node_defs.by_name(graph_def.node)
    if not name or num_splits == 1:
        return None
    arguments = [node_defs.input_value(nodes, nodes[name], index) for index in (1, 2)]
    if arguments != [num_splits, split]:
        return None
    before = node_defs.copy_of(graph_def)
    node_defs.retval(before).input[0] = nodes[name].input[0]
    source = canonicalize(before)
    ops = {node.op for node in node_defs.all_nodes(source)}
    if "ShardDataset" in ops or ops & (caches.OPS | PYTHON_OPS):
        return None
    shapes = sharding.output_attr(graph_def, nodes[name], "output_shapes").list.shape
    types = sharding.output_attr(graph_def, nodes[name], "output_types").list.type
    spec = tuple(
        tf.TensorSpec(tf.TensorShape(shape), tf.dtypes.as_dtype(kind))
        for shape, kind in zip(shapes, types, strict=True)
    )
    if not all(one.shape.is_fully_defined() and one.dtype != tf.variant for one in spec):
        return None
    return RecordShard(source, spec, _count_batches(main_scope(graph_def), name))


def _count_batches(main: Scope, shard: str) -> int | None:
    """Return how many ops batch what the shard returns; None if an op does anything else."""
    count = 0
    for node in main.chain():
        if node.name == shard:
            return count
        is_batch = kind(node.op) in ("Batch", "ParallelBatch")
        if is_batch and drops_remainder(main, node) is False:
            count += 1
        elif kind(node.op) not in PASSES:
            return None
    return None
