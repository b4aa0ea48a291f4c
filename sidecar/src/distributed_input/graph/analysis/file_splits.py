"""Whether the splits of a dataset can be made of its files.

They can if each op between the reader and the end commutes with it: if it works on each row alone,
or only changes the order of rows, or batches rows that are batched again. The tables have the ops
that are known to do so; any other op leads to splits that are dealt from the complete dataset.
"""

from __future__ import annotations

from distributed_input.graph import determinism
from distributed_input.graph.analysis.batches import (
    batch_size,
    can_batch_again,
    drops_remainder,
    has_fixed_rows,
    is_batch,
    is_row_map,
)
from distributed_input.graph.definition.datasets import (
    BATCHES,
    FILTERS,
    FLATTENS,
    MAPS,
    PASSES,
    READERS,
    REORDERS,
    Scope,
    kind,
    main_scope,
)
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

SHARD_MARK = "_distributed_input_shard"
"""Attribute of the shard ops of files that TensorFlow has inserted."""
_FITS_ROWS = REORDERS | MAPS | FILTERS | FLATTENS | {"ParseExample", "Unbatch"}
_FITS_BATCHES = REORDERS | {"ParseExample"}


def obstacle(graph_def: GraphDef) -> tuple[str, bool]:
    """Return the op because of which files cannot be split, or "". The graph has marked shards.

    Also return whether it is a map of batches, which may still work on each row alone.
    """
    serial = determinism.serial_ops(graph_def)
    if serial:
        return f"{serial[0].op} in {serial[0].function}", False
    main = main_scope(graph_def)
    after: list[NodeDef] = []
    for node in main.chain():
        if SHARD_MARK in node.attr:
            return _obstacle(main, after)
        after.append(node)
    return str(after[-1].op), False  # it joins several datasets, or its function has the shard


def hides_reader(graph_def: GraphDef) -> str:
    """Return the last op that cannot be split by files, if the dataset reads files; else ""."""
    main = main_scope(graph_def)
    if not any(kind(node.op) in READERS for node in main.with_called(graph_def.node)):
        return ""
    fits = _FITS_ROWS | set(BATCHES)
    unknown = (node for node in main.chain() if kind(node.op) not in fits)
    return next((str(node.op) for node in unknown if main.datasets(node)), "")


def _obstacle(main: Scope, after: list[NodeDef]) -> tuple[str, bool]:
    batch: NodeDef | None = None  # the op that made the elements batches
    unknown = ""  # a map of batches, which may still work on each row alone
    for node in reversed(after):
        if is_batch(node):
            if not _may_batch(main, node, batch):
                return str(node.op), False
            batch = node
        elif batch is None:
            if kind(node.op) not in _FITS_ROWS:
                return str(node.op), False
        elif kind(node.op) == "Unbatch" and not drops_remainder(main, batch):
            batch = None
        elif not _fits_batches(main, node, batch):
            if kind(node.op) not in MAPS:
                return str(node.op), False
            unknown = unknown or str(node.op)
    return unknown, bool(unknown)


def _may_batch(main: Scope, node: NodeDef, before: NodeDef | None) -> bool:
    """Return whether an op makes batches whose rows can be batched again."""
    drops = drops_remainder(main, node)
    if batch_size(main, node) is None or drops is None or not can_batch_again(main, node):
        return False
    if kind(node.op) == "Rebatch":
        return not drops and (before is None or not drops_remainder(main, before))
    return before is None


def _fits_batches(main: Scope, node: NodeDef, batch: NodeDef) -> bool:
    if not has_fixed_rows(main, batch):
        return kind(node.op) in PASSES
    if kind(node.op) not in MAPS:
        return kind(node.op) in _FITS_BATCHES
    # A function may need the size of complete batches.
    return not drops_remainder(main, batch) and is_row_map(main, node)
