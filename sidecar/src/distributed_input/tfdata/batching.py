"""Many rows in one element, where a dataset's elements are single rows.

An element costs some 100 microseconds in Python, however small it is.
"""

from __future__ import annotations

import tensorflow as tf

from distributed_input.elements import ElementSpec, Leaf


def can_batch(spec: ElementSpec) -> bool:
    """Whether `batch_rows` gives the same rows as they come one by one."""
    return all(map(_can_batch, spec.leaves))


def batch_rows(dataset: tf.data.Dataset, spec: ElementSpec, rows: int) -> tf.data.Dataset:
    """The dataset with so many rows an element, the last may have fewer; for `make_encoder`.

    Args:
      dataset: of single rows.
      spec: of a row; `can_batch` is true of it.
      rows: in an element.
    """
    return dataset.batch(rows) if spec.is_static else dataset.ragged_batch(rows)


def _can_batch(leaf: Leaf) -> bool:
    if leaf.kind == "ragged":
        return True
    # A batch knows one shape: rows may differ in their first dimension, which becomes ragged.
    unknown = leaf.shape[1:] if leaf.kind == "dense" else leaf.shape
    return None not in unknown
