"""Skip the first rows of a split without calling the functions that compute them.

At its end, a dataset often maps and batches elements one by one: row r then needs only element r of
what comes before. A split can continue at any such row. What comes before the maps runs again from
its start: it shuffles, interleaves and reads, and calls no functions. A map of batches may change
their number of rows, so rows are not skipped behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distributed_input.graph import sharding
from distributed_input.graph.analysis.batches import batch_size, drops_remainder
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import (
    FLATTENS,
    MAPS,
    PASSES,
    Scope,
    kind,
    main_scope,
)
from distributed_input.graph.definition.node_defs import PYTHON_OPS, GraphDef, NodeDef
from distributed_input.graph.determinism import depends_on_order
from distributed_input.graph.random.element_keys import DROPS_KEY, has_keys

_BATCHES = frozenset(["Batch", "ParallelBatch", "PaddedBatch"])
_FLATTENS = FLATTENS - {"LegacyParallelInterleave"}


@dataclass(frozen=True)
class RowSkip:
    """Where rows are skipped.

    The number of skipped rows must be a multiple of `rows`. As many elements are skipped at each of
    the edges: a node, and the index of its input.
    """

    rows: int
    edges: tuple[tuple[str, int], ...]


def find(graph_def: GraphDef, batched: bool) -> RowSkip | None:
    """Return where a split skips rows; None if it cannot, or if it would save no calls.

    The graph has the seeds of an epoch and the keys of its elements.
    """
    library = node_defs.library(graph_def)
    if any(
        node.op not in library and depends_on_order(node.op)
        for function in library.values()
        for node in function.node_def
    ):
        return None
    nodes = node_defs.by_name(graph_def.node)
    walk = _RowWalk(main_scope(graph_def), batched)
    owner, below = node_defs.retval(graph_def), None
    while (below := nodes.get(node_defs.source_of(owner.input[0]))) and walk.passes(below):
        owner = below
    if below is None or not walk.maps or walk.size is None:
        return None
    before = node_defs.with_called(library, node_defs.ancestors(nodes, below))
    if any(_computes(library, node) for node in before):
        return None
    edges = (*((name, 1) for name in walk.zips), (str(owner.name), 0))
    return RowSkip(walk.size if walk.is_aligned else 1, edges)


def skip(graph_def: GraphDef, where: RowSkip, rows: int) -> GraphDef:
    """Return the graph of a split without its first rows, as a new graph."""
    out = node_defs.copy_of(graph_def)
    nodes = node_defs.by_name(out.node)
    for name, index in where.edges:
        owner = nodes[name]
        below = nodes[node_defs.source_of(owner.input[index])]
        count = node_defs.add_const(out.node, f"{below.name}/skip/count", rows)
        skipped = out.node.add(op="SkipDataset", name=f"{below.name}/skip")
        skipped.input.extend([owner.input[index], count.name])
        for key in ("output_types", "output_shapes"):
            skipped.attr[key].CopyFrom(sharding.output_attr(out, below, key))
        skipped.attr["metadata"].s = b""
        owner.input[index] = skipped.name
    return out


class _RowWalk:
    """The nodes from the end of a dataset towards its source that map and batch elements.

    `size` is the number of rows in a batch; 1: elements are rows; None: the batch was not found.
    `is_aligned`: only whole batches may be skipped. `zips`: nodes that zip elements with their
    keys, which are skipped too.
    """

    def __init__(self, main: Scope, batched: bool) -> None:
        self.size = None if batched else 1
        self.maps = 0
        self.is_aligned = False
        self.zips: list[str] = []
        self._main = main

    def passes(self, node: NodeDef) -> bool:
        """Add a node. Return whether the walk continues before it."""
        if has_keys(node):
            self.zips.append(str(node.name))
            return self.size is not None
        if kind(node.op) in MAPS:
            self.maps += not node.attr["f"].func.name.startswith(DROPS_KEY)
            return self.size is not None  # a map of batches may change their number of rows
        if kind(node.op) in _BATCHES and self.size is None:
            return self._passes_batch(node)
        return node.op == "Identity" or kind(node.op) in PASSES

    def _passes_batch(self, node: NodeDef) -> bool:
        drops = drops_remainder(self._main, node)
        self.size = batch_size(self._main, node)
        self.is_aligned = node.op.startswith("Padded") or bool(drops)
        return self.size is not None and drops is not None


def _computes(library: dict[str, Any], node: NodeDef) -> bool:
    """Return whether an op calls Python, or is a dataset whose function computes elements."""
    calls = any(name in library for name in node_defs.called(node))
    return node.op in PYTHON_OPS or (
        calls and "Dataset" in node.op and kind(node.op) not in _FLATTENS
    )
