"""Keras's epoch loop is recognized by its frames, and a user's loop is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.trainer.frameworks import keras_epochs
from distributed_input.trainer.tensorflow import keras_fit


class Recording:
    """An iterable that records the loop that iterates over it."""

    def __init__(self) -> None:
        self.loop: keras_epochs.EpochLoop | None = None

    def __iter__(self) -> Iterator[int]:
        self.loop = keras_epochs.calling_epoch_loop()
        return iter([1])


class EpochIterator:
    """The parts of Keras's class that matter."""

    def __init__(self, steps_per_epoch: int | None = None) -> None:
        self.steps_per_epoch = steps_per_epoch
        self._num_batches: int | None = None

    def read(self, source: Any) -> list[int]:
        return list(source)

    def _maybe_symbolic_build(self, source: Any) -> int:
        return next(iter(source))


class UserLoop(EpochIterator):
    """A class of the user that looks similar."""


EpochIterator.__module__ = "keras.src.trainers.epoch_iterator"


def test_fit_is_recognized() -> None:
    source = Recording()
    EpochIterator().read(source)
    assert source.loop is not None
    assert not source.loop.building
    EpochIterator()._maybe_symbolic_build(source)
    assert source.loop is not None
    assert source.loop.building


def test_other_loops_are_not_fit() -> None:
    source = Recording()
    list(source)
    assert source.loop is None
    UserLoop().read(source)
    assert source.loop is None


@pytest.mark.parametrize(("steps", "batches"), [(None, sys.maxsize), (3, None)])
def test_epochs_are_read_to_their_end_unless_the_user_set_a_length(
    steps: int | None, batches: int | None
) -> None:
    keras = EpochIterator(steps)
    dataset = keras_fit.WholeEpochDataset(tf.data.Dataset.range(3))
    assert [int(row) for row in keras.read(dataset)] == [0, 1, 2]
    assert keras._num_batches == batches


def test_the_wrapped_dataset_has_the_same_elements_and_options() -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.range(3).with_options(options)
    whole = keras_fit.WholeEpochDataset(dataset)
    assert isinstance(whole, tf.data.Dataset)
    assert whole.element_spec == dataset.element_spec
    assert whole.options() == dataset.options()
    assert list(whole.map(lambda row: row + 1).as_numpy_iterator()) == [1, 2, 3]


@pytest.mark.parametrize(
    "component",
    [
        None,
        tf.RaggedTensorSpec([None, None, 2], tf.int32, row_splits_dtype=tf.int32),
        tf.RaggedTensorSpec([4, None, None], tf.string),
        tf.RaggedTensorSpec([None, 3], tf.float32, ragged_rank=0),
        tf.SparseTensorSpec([None, 5], tf.float32),
        tf.SparseTensorSpec([None, 5], tf.string),
        tf.TensorSpec([None], tf.string),
        tf.TensorSpec([None], tf.bool),
    ],
    ids=str,
)
def test_zeros_of_each_kind_of_component_have_its_spec(component: Any) -> None:
    spec = ({"x": tf.TensorSpec([None, 2])}, component, tf.TensorSpec([None]))
    dataset = tf.data.Dataset.from_tensors(keras_fit.zeros(spec, 4))
    batch = keras_fit.zeros(dataset.element_spec, 4)  # tf.data has its own spec of None
    found = tf.data.Dataset.from_tensors(batch).element_spec[1]
    if component is None:
        assert batch[1] is None
    else:
        assert component.is_compatible_with(batch[1])
        assert type(found) is type(component) or component.shape == [None, 3]


def test_zeros_can_be_distributed() -> None:
    spec = (
        tf.TensorSpec([None, 2]),
        None,
        tf.RaggedTensorSpec([None, None], tf.int32),
        tf.SparseTensorSpec([None, 5], tf.float32),
    )
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batch = strategy.experimental_distribute_values_from_function(
        lambda _: keras_fit.zeros(spec, 4)
    )
    shapes = strategy.run(
        lambda x, y, ragged, sparse: (tf.shape(x)[0], y, ragged.nrows(), sparse.dense_shape[1]),
        batch,
    )
    found = [one if one is None else strategy.experimental_local_results(one) for one in shapes]
    assert [one if one is None else [int(part) for part in one] for one in found] == [
        [4, 4],
        None,
        [4, 4],
        [5, 5],
    ]
