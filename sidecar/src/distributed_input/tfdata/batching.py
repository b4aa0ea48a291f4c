"""Batch a dataset's rows into elements of a given size."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.tfdata.analysis.batches import drops_remainder
from distributed_input.tfdata.graph import node_defs, serialization
from distributed_input.tfdata.graph.datasets import PASSES, main_scope
from distributed_input.tfdata.graph.node_defs import GraphDef
from distributed_input.tfdata.joined_batches import component_specs


def can_batch(spec: ElementSpec, batched: bool) -> bool:
    """Return whether `batch_rows` keeps the rows of the dataset unchanged."""
    return spec.is_static if batched else all(map(_can_batch, spec.leaves))


def batch_rows(
    dataset: tf.data.Dataset, spec: ElementSpec, batched: bool, rows: int
) -> tf.data.Dataset:
    """Return the dataset with `rows` rows in each element, for `make_encoder`.

    The last element may have fewer rows. Batches with at least `rows` rows are not changed.
    `can_batch` must return True for the spec of a row.
    """
    if batched:
        specs = component_specs(dataset)
        if (specs[0].shape[0] or 0) >= rows:
            return dataset
        # TensorFlow keeps batches of scalars as variants if they were made of ragged rows.
        dense = all(isinstance(spec, tf.TensorSpec) for spec in specs)
        return _rebatch(dataset, rows) if dense else dataset.rebatch(rows)
    return dataset.batch(rows) if spec.is_static else dataset.ragged_batch(rows)


def with_batch_size(graph_def: GraphDef, rows: int) -> GraphDef | None:
    """Return the graph of a split with `rows` rows in each element but the last, as a new graph.

    The worker changes the last op, because to batch a dataset again copies each row once more.
    None if its last op does not batch rows, apart from ops that keep elements, or if the op drops
    the last rows.
    """
    main = main_scope(graph_def)
    _, node = main.tail(PASSES)
    if node is None or node.op != "BatchDatasetV2" or drops_remainder(main, node) is not False:
        return None
    out = node_defs.copy_of(graph_def)
    size = node_defs.add_const(out.node, f"{node.name}/rows", rows)
    node_defs.by_name(out.node)[node.name].input[1] = size.name
    return out


def _rebatch(dataset: tf.data.Dataset, rows: int) -> tf.data.Dataset:
    """Rebatch a dataset of dense tensors.

    `Dataset.rebatch` also converts components that are not dense: it would trace a function for
    each split, and call it for each element.
    """
    spec = tf.nest.map_structure(_of_any_rows, dataset.element_spec)
    parts = [_of_any_rows(part) for part in component_specs(dataset)]
    return serialization.derive(
        dataset,
        tf.raw_ops.RebatchDatasetV2,
        spec,
        batch_sizes=tf.constant([rows], tf.int64),
        drop_remainder=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )


def _of_any_rows(spec: tf.TypeSpec) -> tf.TypeSpec:
    if isinstance(spec, NoneTensorSpec):
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def _can_batch(leaf: Leaf) -> bool:
    if leaf.kind in ("ragged", "unranked"):
        return leaf.kind == "ragged"
    # A batch has one shape. Only the first dimension of the rows may differ: it becomes ragged.
    unknown = leaf.shape[1:] if leaf.kind == "dense" else leaf.shape
    return None not in unknown
