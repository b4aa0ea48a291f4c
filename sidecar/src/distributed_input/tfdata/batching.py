"""Batch a dataset's rows into elements of a given size."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.tfdata.joined_batches import component_specs


def can_batch(spec: ElementSpec, batched: bool) -> bool:
    """Return whether `batch_rows` keeps the rows of the dataset unchanged."""
    return spec.is_static if batched else all(map(_can_batch, spec.leaves))


def batch_rows(
    dataset: tf.data.Dataset, spec: ElementSpec, batched: bool, rows: int
) -> tf.data.Dataset:
    """Return the dataset with `rows` rows in each element, for `make_encoder`.

    The last element may have fewer rows.

    Args:
      dataset: of rows or of batches; batches with at least `rows` rows are not changed.
      spec: of a row; `can_batch` must return True for it.
      batched: the dataset's elements are batches.
      rows: the number of rows in an element.
    """
    if batched:
        specs = component_specs(dataset)
        if (specs[0].shape[0] or 0) >= rows:
            return dataset
        # TensorFlow keeps batches of scalars as variants if they were made of ragged rows.
        dense = all(isinstance(spec, tf.TensorSpec) for spec in specs)
        return _rebatch(dataset, rows) if dense else dataset.rebatch(rows)
    return dataset.batch(rows) if spec.is_static else dataset.ragged_batch(rows)


def _rebatch(dataset: tf.data.Dataset, rows: int) -> tf.data.Dataset:
    """Rebatch a dataset of dense tensors.

    `Dataset.rebatch` also converts components that are not dense: it would trace a function for
    each split, and call it for each element.
    """
    spec = tf.nest.map_structure(_of_any_rows, dataset.element_spec)
    parts = [_of_any_rows(part) for part in component_specs(dataset)]
    variant = tf.raw_ops.RebatchDatasetV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        batch_sizes=tf.constant([rows], tf.int64),
        drop_remainder=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )
    rebatched = tf.data.experimental.from_variant(variant, spec)
    # Resources of the dataset's graph, such as Python functions, live as long as the dataset.
    rebatched._of = dataset  # noqa: SLF001  this package's attribute
    return rebatched


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
