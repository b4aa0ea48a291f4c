"""The rows in the elements of a dataset: whether an element is a batch, and of how many rows.

The tables have the ops that are known to keep batches. An element after any other op counts as a
whole, whose first dimension may be anything.

`padded_batch` makes all rows of a batch as long as the longest one. A step has rows of several
splits, so their rows are padded again, with the same values, to the longest row of the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from distributed_input.graph.analysis.row_functions import works_by_rows
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import (
    BATCHES,
    FILTERS,
    MAPS,
    PASSES,
    REORDERS,
    REPEATS,
    Scope,
    kind,
    main_scope,
)
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef
from distributed_input.rows.elements import ElementSpec

PADDED_ROW = "_distributed_input_row"
"""Attribute of an op whose elements are the rows of padded batches, also if it makes batches."""

_KEEPS_PADDING = REORDERS | FILTERS | {"Skip", "Take", "TakeWhile", "Shard"}
_KEEPS = _KEEPS_PADDING | {"AssertCardinality", "IgnoreErrors", "ParseExample"}
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


def find_batches(main: Scope) -> ElementBatches:
    """Return what is known of the batches in a dataset's graph."""
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
        if not (one in _KEEPS or (one in MAPS and is_row_map(main, node))):
            before = main.with_called(node_defs.ancestors(main.nodes, node))
            is_hidden = sum(map(is_batch, before)) > sum(_undoes(main, each) for each in before)
            return ElementBatches(hidden_by=str(node.op) if is_hidden else "")
    return ElementBatches()


def _undoes(main: Scope, node: NodeDef) -> bool:
    """Return whether an op makes rows of the batches of an op before it."""
    is_main = main.nodes.get(node.name) is node
    if not is_main or kind(node.op) != "Unbatch":
        return False
    return any(map(is_batch, node_defs.ancestors(main.nodes, node)))


def is_batch(node: NodeDef) -> bool:
    """Return whether an op batches rows."""
    return kind(node.op) in BATCHES and node.op != "RebatchDataset"  # its input is no batch size


def batch_size(scope: Scope, node: NodeDef) -> int | None:
    """Return the batch size of an op that batches, or None."""
    value = scope.value(node, BATCHES[kind(node.op)])
    sizes = set() if value is None else set(value.reshape(-1).tolist())
    return int(sizes.pop()) if len(sizes) == 1 else None


def has_fixed_rows(scope: Scope, node: NodeDef) -> bool:
    """Return whether the sizes of a batch's rows do not depend on its other rows."""
    return kind(node.op) != "PaddedBatch" or all(
        shape is not None and -1 not in shape for shape in _padded_shapes(scope, node)
    )


def can_batch_again(scope: Scope, node: NodeDef) -> bool:
    """Return whether the rows of a batch at the end can be batched again with others."""
    return has_fixed_rows(scope, node) or _is_to_longest(scope, node)


def drops_remainder(scope: Scope, node: NodeDef) -> bool | None:
    """Return whether an op that batches drops an incomplete batch; None if it is unknown."""
    if node.op in ("BatchDataset", "PaddedBatchDataset"):
        return False
    value = scope.value(node, -1)
    return None if value is None else bool(value)


def disable_drop_remainder(graph_def: GraphDef, in_repeats: bool = True) -> bool:
    """Disable drop_remainder, in place, if all later ops pass elements on without a change.

    In a dataset that is split and batched again, the flag would drop up to n - 1 rows at the end of
    every split, and all rows of a short split. The job's `remainder: Drop` also gives batches of
    one size, and drops at most one batch per consumer.

    With `in_repeats`, also if the batches are repeated: then each pass has the rows that the flag
    drops. Return whether the flag was set and is now disabled.
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
    leaves = (
        replace(leaf, shape=(None, *leaf.shape[1:])) if leaf.shape else leaf for leaf in spec.leaves
    )
    return ElementSpec(spec.structure, tuple(leaves))


def is_row_map(scope: Scope, node: NodeDef, exact: bool = False) -> bool:
    """Return whether a map of batches is known to work row by row; see `works_by_rows`."""
    source = scope.input(node)
    if source is None or "output_shapes" not in source.attr:
        return False
    shapes = map(tf.TensorShape, source.attr["output_shapes"].list.shape)
    any_rows = [tf.TensorShape([None, *one[1:]]) if one.rank else one for one in shapes]
    return works_by_rows(scope.library, node.attr["f"].func.name, any_rows, exact)


def padding_values(main: Scope) -> tuple[Any, ...]:
    """Return the values that fill up the components of a dataset's padded batches.

    A number, text (latin-1 of strings, or a complex number) or None for each component; () if no
    padded batch is returned as it is.
    """
    _, node = main.tail(_KEEPS_PADDING)
    if node is None or kind(node.op) != "PaddedBatch":
        return ()
    count = node.attr["N"].i
    return tuple(_value(main.input(node, 2 + count + index)) for index in range(count))


def remove_padding(graph_def: GraphDef) -> bool:
    """Return rows in place of batches that are padded to the longest row, in place.

    False if the dataset does not end with such batches, and the graph is not changed.
    """
    main = main_scope(graph_def)
    passed, node = main.tail(PASSES)
    if node is None or kind(node.op) != "PaddedBatch":
        return False
    source = main.input(node)
    if source is None or main.value(node, -1) is None or has_fixed_rows(main, node):
        return False
    if not _is_to_longest(main, node):
        return False
    above = passed[-1] if passed else node_defs.retval(graph_def)
    above.input[0] = node.input[0]
    source.attr[PADDED_ROW].b = True
    for one in passed:
        one.attr["output_shapes"].CopyFrom(source.attr["output_shapes"])
    return True


def _is_to_longest(scope: Scope, node: NodeDef) -> bool:
    """Return whether a padded batch pads all rows to the longest one, and only so."""
    shapes = _padded_shapes(scope, node)
    source = scope.input(node)
    if source is None or len(shapes) != len(source.attr["output_shapes"].list.shape):
        return False
    for padded, shape in zip(shapes, source.attr["output_shapes"].list.shape, strict=True):
        sizes = None if shape.unknown_rank else [dim.size for dim in shape.dim]
        if padded is None or sizes is None:
            return False
        if any(to not in (-1, size) for to, size in zip(padded, sizes, strict=True)):
            return False
    return True


def _padded_shapes(scope: Scope, node: NodeDef) -> list[Any]:
    """Return the sizes for each component, -1 for the longest; None: they are computed."""
    found = (scope.value(node, 2 + index) for index in range(node.attr["N"].i))
    return [None if one is None else one.reshape(-1).tolist() for one in found]


def _value(node: NodeDef | None) -> Any:
    value = node_defs.const_value(node)
    if value is not None:
        return value.item()
    if node is None or node.op != "Const":
        return None
    tensor = node.attr["value"].tensor
    if tf.dtypes.as_dtype(tensor.dtype).is_complex:
        return str(tensor_util.MakeNdarray(tensor).item())
    return tensor.string_val[0].decode("latin-1") if tensor.string_val else None
