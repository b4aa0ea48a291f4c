"""The datasets of strategies, without an input. `tests/compat` has them with one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.client.tensorflow.distribute import CountingDataset
from distributed_input.client.tensorflow.step_counter import StepVariable


class NativeDataset:
    """A strategy's dataset. Its first iterators fail with the end of another thread's iterator."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __iter__(self) -> Iterator[Any]:
        if self.failures:
            self.failures -= 1
            raise tf.errors.OutOfRangeError(None, None, "End of sequence [Op:GeneratorDataset]")
        return self

    def __next__(self) -> Any:
        raise NotImplementedError

    def get_next(self, _name: str | None) -> Any:
        raise tf.errors.OutOfRangeError(None, None, "End of sequence [Op:IteratorGetNext]")


def test_the_end_of_another_threads_iterator_does_not_end_a_new_one() -> None:
    native, counter = NativeDataset(3), StepVariable()
    assert list(CountingDataset(native, counter.handle)) == []
    assert counter.requested(1) == 1, "it is one iterator"


def test_an_end_that_comes_again_and_again_is_an_error() -> None:
    with pytest.raises(tf.errors.OutOfRangeError, match="GeneratorDataset"):
        iter(CountingDataset(NativeDataset(1000), StepVariable().handle))
