"""Padded batches: the values that fill them up, and datasets without the padding.

`padded_batch` makes all rows of a batch as long as the longest one. A step has rows of several
splits, so their rows are padded again, with the same values, to the longest row of the step.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import tensor_util

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.dataset_ops import FILTERS, PASSES, REORDERS, kind
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef
from distributed_input.tfdata.graph.scopes import Scope, main_scope

ROW = "_distributed_input_row"
"""Attribute of an op whose elements are the rows of padded batches, also if it makes batches."""

_KEEPS = REORDERS | FILTERS | {"Skip", "Take", "TakeWhile", "Shard"}


def has_fixed_sizes(scope: Scope, node: NodeDef) -> bool:
    """Return whether a padded batch has rows of one size, whatever the other rows are."""
    return all(shape is not None and -1 not in shape for shape in _padded_shapes(scope, node))


def is_to_longest(scope: Scope, node: NodeDef) -> bool:
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


def values(graph_def: GraphDef) -> tuple[Any, ...]:
    """Return the values that fill up the components of a dataset's padded batches.

    Returns:
      A number, text (latin-1 of strings, or a complex number) or None for each component; () if no
      padded batch is returned as it is.
    """
    main = main_scope(graph_def)
    _, node = main.tail(_KEEPS)
    if node is None or kind(node.op) != "PaddedBatch":
        return ()
    count = node.attr["N"].i
    inputs = node_defs.data_inputs(node)[2 + count : 2 + 2 * count]
    return tuple(_value(main.nodes.get(node_defs.source_of(name))) for name in inputs)


def remove(graph_def: GraphDef) -> bool:
    """Return rows in place of batches that are padded to the longest row, in place.

    Returns:
      False if the dataset does not end with such batches, and the graph is not changed.
    """
    main = main_scope(graph_def)
    passed, node = main.tail(PASSES)
    if node is None or kind(node.op) != "PaddedBatch":
        return False
    source = main.input(node)
    is_known = node_defs.input_value(main.nodes, node, -1) is not None
    if source is None or has_fixed_sizes(main, node) or not is_known:
        return False
    if not is_to_longest(main, node):
        return False
    above = passed[-1] if passed else node_defs.retval(graph_def)
    above.input[0] = node.input[0]
    source.attr[ROW].b = True
    for one in passed:
        one.attr["output_shapes"].CopyFrom(source.attr["output_shapes"])
    return True


def _padded_shapes(scope: Scope, node: NodeDef) -> list[Any]:
    """Return the sizes for each component, -1 for the longest; None: they are computed."""
    found = (
        node_defs.input_value(scope.nodes, node, 2 + index) for index in range(node.attr["N"].i)
    )
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
