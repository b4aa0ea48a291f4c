"""The rows in the elements of a dataset: whether an element is a batch, and of how many rows.

The tables have the ops that are known to keep batches. An element after any other op counts as a
whole, whose first dimension may be anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata.analysis import padding
from distributed_input.tfdata.analysis.row_functions import works_by_rows
from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.dataset_ops import (
    BATCHES,
    FILTERS,
    MAPS,
    PASSES,
    REORDERS,
    REPEATS,
    kind,
)
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef
from distributed_input.tfdata.graph.scopes import GraphFunctions, Scope, main_scope

_KEEPS = (
    REORDERS
    | FILTERS
    | {"Skip", "Take", "TakeWhile", "Shard", "AssertCardinality", "IgnoreErrors", "ParseExample"}
)
_WITH_FLAG = frozenset(BATCHES) - {"Rebatch"}
# With one batch more, they still return each batch as it is.
_KEEPS_LAST = REORDERS | {"Shard", "Take", "Skip"}


@dataclass(frozen=True)
class ElementBatches:
    """What is known of the batches in a dataset.

    Attributes:
      batched: its elements are batches of rows.
      size: rows in a batch, if `batched` and if they are known.
      repeated: an op that repeats batches, so that each pass may end with a smaller one; "": none.
      hidden_by: the op because of which elements do not count as the batches that an op before it
        or in its function makes; "" if there is none.
    """

    batched: bool = False
    size: int | None = None
    repeated: str = ""
    hidden_by: str = ""


def find_batches(graph_def: GraphDef) -> ElementBatches:
    """Return what is known of the batches in a dataset's graph."""
    functions, main = GraphFunctions(graph_def), main_scope(graph_def)
    repeated, is_last = "", True
    for node in main.chain():
        one = kind(node.op)
        if is_batch(node):
            may_batch = can_batch_again if is_last else has_fixed_rows
            size = batch_size(main, node) if may_batch(main, node) else None
            return ElementBatches(True, size, repeated)
        if one in REPEATS:
            repeated = node.op
        is_last = is_last and one in PASSES
        is_map = one in MAPS and is_row_map(functions, main, node)
        if not (one in _KEEPS or is_map):
            return ElementBatches(hidden_by=_hides(functions, main, node))
    return ElementBatches()


def is_batch(node: NodeDef) -> bool:
    """Return whether an op batches rows."""
    return kind(node.op) in BATCHES and node.op != "RebatchDataset"  # its input is no batch size


def batch_size(scope: Scope, node: NodeDef) -> int | None:
    """Return the batch size of an op that batches, or None."""
    value = node_defs.input_value(scope.nodes, node, BATCHES[kind(node.op)])
    sizes = set() if value is None else set(value.reshape(-1).tolist())
    return int(sizes.pop()) if len(sizes) == 1 else None


def has_fixed_rows(scope: Scope, node: NodeDef) -> bool:
    """Return whether the sizes of a batch's rows do not depend on its other rows."""
    return kind(node.op) != "PaddedBatch" or padding.has_fixed_sizes(scope, node)


def can_batch_again(scope: Scope, node: NodeDef) -> bool:
    """Return whether the rows of a batch at the end can be batched again with others."""
    return has_fixed_rows(scope, node) or padding.is_to_longest(scope, node)


def drops_remainder(scope: Scope, node: NodeDef) -> bool | None:
    """Return whether an op that batches drops an incomplete batch; None if it is unknown."""
    if node.op in ("BatchDataset", "PaddedBatchDataset"):
        return False
    value = node_defs.input_value(scope.nodes, node, -1)
    return None if value is None else bool(value)


def disable_drop_remainder(graph_def: GraphDef, in_repeats: bool = True) -> bool:
    """Disable drop_remainder, in place, if all later ops pass elements on without a change.

    In a dataset that is split and batched again, the flag would drop up to n - 1 rows at the end of
    every split, and all rows of a short split. The job's `remainder: Drop` also gives batches of
    one size, and drops at most one batch per consumer.

    Args:
      graph_def: the graph of a split.
      in_repeats: also if the batches are repeated: then each pass has the rows that the flag drops.

    Returns:
      Whether the flag was set and is now disabled.
    """
    main = main_scope(graph_def)
    passed, node = main.tail(_KEEPS_LAST if in_repeats else _KEEPS_LAST - REPEATS)
    if node is None or kind(node.op) not in _WITH_FLAG or not drops_remainder(main, node):
        return False
    const = node_defs.add_const(graph_def.node, f"{node.name}/keep_remainder", False, tf.bool)
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


def is_row_map(functions: GraphFunctions, scope: Scope, node: NodeDef) -> bool:
    """Return whether a map of batches is known to work row by row."""
    source = scope.input(node)
    if source is None or "output_shapes" not in source.attr:
        return False
    shapes = [_any_rows(shape) for shape in source.attr["output_shapes"].list.shape]
    return works_by_rows(functions.library, node.attr["f"].func.name, shapes)


def _any_rows(shape: Any) -> tf.TensorShape:
    found = tf.TensorShape(shape)
    return tf.TensorShape([None, *found[1:]]) if found.rank else found


def _hides(functions: GraphFunctions, scope: Scope, node: NodeDef) -> str:
    """Return the op if there is a batch before it or in its functions, else ""."""
    before = node_defs.ancestors(scope.nodes, node)
    batches = (one for one in functions.nodes(before) if is_batch(one))
    return str(node.op) if next(batches, None) is not None else ""
