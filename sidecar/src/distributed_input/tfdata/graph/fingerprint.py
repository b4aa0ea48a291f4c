"""Fingerprints of canonical graphs: equal graphs have equal fingerprints in every process."""

from __future__ import annotations

import hashlib

import tensorflow as tf

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef

VERSION = f"{tf.__version__}/2"
"""Fingerprints are comparable if this is equal: TensorFlow's graphs, and their canonical form."""


def fingerprint(graph_def: GraphDef, *, without_shard: bool = False) -> int:
    """Return the fingerprint of a canonical graph: 64 bits.

    It covers everything in the graph, for example lists of files and other constants. It does not
    cover the content of files, and the code of Python functions.

    Args:
      graph_def: the graph, which is not changed.
      without_shard: leave out the arguments of `dataset.shard`, so that the splits of
        `files.shard(n, i)` have equal fingerprints.
    """
    copied = node_defs.copy_of(graph_def)
    nodes = node_defs.by_name(copied.node)
    if without_shard:
        for node in copied.node:
            if node.op == "ShardDataset":
                for name in node_defs.data_inputs(node)[1:]:
                    nodes[node_defs.source_of(name)].attr["value"].Clear()
    data = stable_bytes(copied)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def stable_bytes(graph_def: GraphDef) -> bytes:
    """Return a canonical graph as bytes that are equal in every process.

    The tokens of its Python functions are replaced, and TensorFlow's hashes of what a snapshot has
    are removed, in place: they differ between equal graphs.
    """
    tokens = 0  # of Python functions: counters of the process
    for node in node_defs.all_nodes(graph_def):
        if node.op in PYTHON_OPS:
            node.attr["token"].s = b"%d" % tokens
            tokens += 1
        elif node.op.startswith("SnapshotDataset"):
            node.attr.pop("hash", None)
    return node_defs.to_bytes(graph_def)
