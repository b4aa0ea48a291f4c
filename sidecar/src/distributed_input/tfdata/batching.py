"""Many rows in one element, whatever the elements of the dataset are."""

from __future__ import annotations

import tensorflow as tf

from distributed_input.rows.elements import ElementSpec, Leaf


def can_batch(spec: ElementSpec, batched: bool) -> bool:
    """Whether `batch_rows` gives the same rows as they come in the dataset's own elements."""
    return spec.is_static if batched else all(map(_can_batch, spec.leaves))


def batch_rows(
    dataset: tf.data.Dataset, spec: ElementSpec, batched: bool, rows: int
) -> tf.data.Dataset:
    """The dataset with so many rows an element, the last may have fewer; for `make_encoder`.

    Args:
      dataset: of rows, or of batches of them: those that are not smaller stay as they are.
      spec: of a row; `can_batch` is true of it.
      batched: the dataset's elements are batches.
      rows: in an element.
    """
    if batched:
        first = tf.nest.flatten(dataset.element_spec)[0]
        return dataset if (first.shape[0] or 0) >= rows else _rebatch(dataset, rows)
    return dataset.batch(rows) if spec.is_static else dataset.ragged_batch(rows)


def _rebatch(dataset: tf.data.Dataset, rows: int) -> tf.data.Dataset:
    """As `Dataset.rebatch`, without its conversion of what is not dense.

    There is nothing of that kind here, and it would trace a function for each split and call it for
    each element.
    """
    spec = tf.nest.map_structure(
        lambda part: tf.TensorSpec([None, *part.shape[1:]], part.dtype), dataset.element_spec
    )
    parts = tf.nest.flatten(spec)
    variant = tf.raw_ops.RebatchDatasetV2(
        input_dataset=tf.data.experimental.to_variant(dataset),
        batch_sizes=tf.constant([rows], tf.int64),
        drop_remainder=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )
    rebatched = tf.data.experimental.from_variant(variant, spec)
    # What the dataset's graph needs lives as long as the dataset: Python functions, say.
    rebatched._of = dataset  # noqa: SLF001  an attribute of ours
    return rebatched


def _can_batch(leaf: Leaf) -> bool:
    if leaf.kind == "ragged":
        return True
    # A batch knows one shape: rows may differ in their first dimension, which becomes ragged.
    unknown = leaf.shape[1:] if leaf.kind == "dense" else leaf.shape
    return None not in unknown
