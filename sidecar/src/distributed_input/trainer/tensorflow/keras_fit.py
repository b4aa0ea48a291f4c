"""Datasets for Keras's `fit` on TensorFlow: see `frameworks/keras_epochs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

from distributed_input.trainer.frameworks.keras_epochs import calling_epoch_loop


class WholeEpochDataset(tf.data.Dataset):
    """A dataset with the same elements, of which `fit` reads every epoch to its end."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        super().__init__(tf.data.experimental.to_variant(dataset))

    def __iter__(self) -> Iterator[Any]:
        loop = calling_epoch_loop()
        if loop is not None:
            loop.read_whole_epochs()
        return super().__iter__()

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        """The nested `tf.TypeSpec` of the elements."""
        return self._dataset.element_spec


def zeros(spec: Any, rows: int) -> Any:
    """Return a batch of zeros, which has no values in its sparse components.

    Args:
        spec: the nested `tf.TypeSpec` of a batch: dense, ragged, sparse or None.
        rows: the size of the first dimension if the spec does not define it.
    """
    return tf.nest.map_structure(lambda part: _zeros_of(part, rows or 1), spec)


def _zeros_of(part: Any, rows: int) -> Any:
    if part is None or isinstance(part, NoneTensorSpec):
        return None
    dims = [None] if part.shape.rank is None else part.shape.as_list()
    shape = [rows if not i and dim is None else dim or 1 for i, dim in enumerate(dims)]
    if isinstance(part, tf.SparseTensorSpec):
        indices = tf.zeros([0, len(shape)], tf.int64)
        return tf.SparseTensor(indices, tf.zeros([0], part.dtype), shape)
    dense = tf.zeros(shape, part.dtype)
    if isinstance(part, tf.RaggedTensorSpec) and part.ragged_rank:
        return tf.RaggedTensor.from_tensor(
            dense, ragged_rank=part.ragged_rank, row_splits_dtype=part.row_splits_dtype
        )
    return dense
