"""The ops that select the rows of a split.

Two selections are known: `dataset.shard(n, i)`, with the number of splits and the number of the
split, and sources whose names of files are in no other split, as Python's `files[i::n]` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

_STRING = tf.string.as_datatype_enum

Shards: TypeAlias = tuple[bool, ...]
"""For each shard op of a graph, and then for each source, whether it selects rows of the split."""
FileNames: TypeAlias = tuple[tuple[frozenset[bytes], ...], ...]
"""For each source of a graph, the strings of each of its inputs."""


def shards_by_split(
    graphs: Mapping[int, GraphDef], num_splits: int, names: Sequence[FileNames] = ()
) -> Shards:
    """Return which shard ops and sources select the rows of a split.

    At least two graphs are needed, because a constant may be equal to the number of one split by
    chance. `names` has the `file_names` of all splits; empty: no source selects.
    """
    found = {_selecting(graph_def, num_splits, split) for split, graph_def in graphs.items()}
    if len(found) > 1 or len(graphs) < 2:
        return ()
    certain = (*found.pop(), *_disjoint(names))
    return certain if any(certain) else ()


def file_names(graph_def: GraphDef) -> FileNames:
    """Return the constant lists of strings from which a split's graph reads."""
    nodes = node_defs.by_name(graph_def.node)
    return tuple(
        tuple(_strings(nodes[node_defs.source_of(name)]) for name in node_defs.data_inputs(source))
        for source in _sources(graph_def)
    )


def selecting_ops(
    graph_def: GraphDef, num_splits: int, split: int, certain: Sequence[bool]
) -> set[tuple[str, str]]:
    """Return the ops that select the rows of a split: their functions ("": the graph), and names.

    `certain` is the result of `shards_by_split`.
    """
    shards = [(scope, node.name) for scope, _, node in _shards(graph_def)]
    sources = [("", node.name) for node in _sources(graph_def)]
    known, others = certain[: len(shards)], certain[len(shards) :]
    found: set[tuple[str, str]] = set()
    if any(known) and _selecting(graph_def, num_splits, split) == tuple(known):
        found |= {place for place, selects in zip(shards, known, strict=True) if selects}
    if len(others) == len(sources):
        found |= {place for place, selects in zip(sources, others, strict=True) if selects}
    return found


def _shards(graph_def: GraphDef) -> Iterator[tuple[str, dict[str, NodeDef], NodeDef]]:
    for scope, scope_nodes in node_defs.scopes(graph_def).items():
        nodes = node_defs.by_name(scope_nodes)
        for node in scope_nodes:
            if node.op == "ShardDataset":
                yield scope, nodes, node


def _sources(graph_def: GraphDef) -> list[NodeDef]:
    """Return the datasets of a graph that have no dataset as their input."""
    datasets = {node.name for node in graph_def.node if node_defs.is_dataset(node)}
    return [
        node
        for node in graph_def.node
        if node.name in datasets
        and not datasets & set(map(node_defs.source_of, node_defs.data_inputs(node)))
    ]


def _strings(node: NodeDef) -> frozenset[bytes]:
    """Return the elements of a constant list of strings; nothing for other nodes."""
    tensor = node.attr["value"].tensor
    if node.op != "Const" or tensor.dtype != _STRING or not tensor.tensor_shape.dim:
        return frozenset()
    value = tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy()
    return frozenset(np.ravel(value).tolist())


def _disjoint(names: Sequence[FileNames]) -> Shards:
    """Return for each source whether each of its files is in one split only."""
    if len({tuple(map(len, of_split)) for of_split in names}) != 1:
        return ()
    by_source = zip(*names, strict=True)
    return tuple(any(map(_are_disjoint, zip(*one, strict=True))) for one in by_source)


def _are_disjoint(lists: Sequence[frozenset[bytes]]) -> bool:
    return sum(map(len, lists)) == len(frozenset().union(*lists)) > 0


def _selecting(graph_def: GraphDef, num_splits: int, split: int) -> Shards:
    return tuple(
        [node_defs.input_value(nodes, node, index) for index in (1, 2)] == [num_splits, split]
        for _, nodes, node in _shards(graph_def)
    )
