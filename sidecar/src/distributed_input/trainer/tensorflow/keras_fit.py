"""Two uses of a dataset by Keras's `fit` that a stream of epochs must recognize.

This module is the only one that depends on Keras's internals. It reads the stack frame of the
caller of `__iter__`, and sets a private field of Keras's epoch iterator.

1. `fit` on a model that was created in a strategy's scope creates an iterator, takes one batch to
   learn the shapes, and drops the iterator (`_maybe_symbolic_build`). For this input, that would
   skip an epoch, or the rest of a restored one. `fit` gets a batch of zeros instead.
2. `fit` assumes that every epoch has as many batches as the first. If the first epoch is the rest
   of a restored one, the later epochs would be cut short. `fit` reads every epoch to its end
   instead, unless the user set `steps_per_epoch`.

Keras has no supported way to do this. These were tried, up to Keras 3.15:

- A Keras callback. `fit` must also be correct without one, and the first iterator is created
  before any callback runs.
- A custom `keras.src.trainers.data_adapters.DataAdapter`. It is private too, and a strategy's
  dataset must be a `tf.distribute.DistributedDataset`.
- A very large `cardinality` for the second use. `fit` would show it as the length of the epoch,
  and users of `cardinality` would get a wrong value. `assert_cardinality` fails at the end.
- A built model for the first use. `fit` takes the batch even then.
- An iterator that recognizes that it was dropped after one batch. A user's loop may do the same,
  and then the next iterator must start the next epoch.

The caller is the only difference between `fit` and a training loop of the user.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

_BUILD_METHOD = "_maybe_symbolic_build"  # of keras.Model with the TensorFlow backend
_BUILD_FRAMES = 4  # the most frames between `__iter__` and that method


@dataclass(frozen=True)
class EpochLoop:
    """The epoch iterator of `fit`, `evaluate` or `predict` that is creating an iterator.

    Attributes:
        building: Keras takes one batch for its shapes, and then drops the iterator.
    """

    building: bool
    _epoch_iterator: Any

    def read_whole_epochs(self) -> None:
        """Let Keras read every epoch to its end, unless the user set the number of batches."""
        keras = self._epoch_iterator
        if keras.steps_per_epoch is None and keras._num_batches is None:  # noqa: SLF001
            keras._num_batches = sys.maxsize  # noqa: SLF001


def calling_epoch_loop() -> EpochLoop | None:
    """Return Keras's epoch loop if it called the `__iter__` method that calls this function."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    owner = frame.f_locals.get("self") if frame is not None else None
    if not type(owner).__module__.startswith("keras."):
        return None
    if not (hasattr(owner, "steps_per_epoch") and hasattr(owner, "_num_batches")):
        return None
    return EpochLoop(_is_building(frame), owner)


def _is_building(frame: FrameType | None) -> bool:
    for _ in range(_BUILD_FRAMES):
        if frame is None:
            return False
        if frame.f_code.co_name == _BUILD_METHOD:
            return True
        frame = frame.f_back
    return False


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
