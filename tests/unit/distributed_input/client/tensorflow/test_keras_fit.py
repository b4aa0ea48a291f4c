"""Keras's epoch loop is recognized by its frames, and a user's loop is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.client.tensorflow import keras_fit


class Recording:
    """An iterable that records the loop that iterates over it."""

    def __init__(self) -> None:
        self.loop: keras_fit.EpochLoop | None = None

    def __iter__(self) -> Iterator[int]:
        self.loop = keras_fit.calling_epoch_loop()
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


@pytest.mark.parametrize(("rows", "expected"), [(4, (4, 1, 2)), (0, (1, 1, 2))])
def test_zeros_have_the_shape_of_a_batch(rows: int, expected: tuple[int, ...]) -> None:
    spec = {"a": tf.TensorSpec([None, None, 2]), "b": tf.TensorSpec([], tf.int32)}
    spec["c"] = tf.TensorSpec(None)
    batch = keras_fit.zeros(spec, rows)
    assert batch["a"].shape == expected
    assert batch["b"].shape == ()
    assert batch["c"].shape == expected[:1]
