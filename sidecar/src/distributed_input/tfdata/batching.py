"""Many rows in one element, whatever the elements of the dataset are."""

from __future__ import annotations

import tensorflow as tf

from distributed_input.elements import ElementSpec, Leaf


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
        return dataset if (first.shape[0] or 0) >= rows else dataset.rebatch(rows)
    return dataset.batch(rows) if spec.is_static else dataset.ragged_batch(rows)


def _can_batch(leaf: Leaf) -> bool:
    if leaf.kind == "ragged":
        return True
    # A batch knows one shape: rows may differ in their first dimension, which becomes ragged.
    unknown = leaf.shape[1:] if leaf.kind == "dense" else leaf.shape
    return None not in unknown
