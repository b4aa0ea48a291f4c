from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.api.errors import FencedError
from distributed_input.trainer.tensorflow.step_counter import StepVariable, begin, count_step


def test_steps_are_counted_for_the_two_newest_iterators() -> None:
    counter = StepVariable()
    _, number = begin(counter.handle)
    first = counter.iterators
    count_step(counter.handle, number)
    count_step(counter.handle, number)
    _, number = begin(counter.handle)
    count_step(counter.handle, number)
    assert (counter.requested(first), counter.requested(counter.iterators)) == (2, 1)


def test_a_step_of_an_older_iterator_is_an_error_and_not_counted() -> None:
    counter = StepVariable()
    _, older = begin(counter.handle)
    _, newer = begin(counter.handle)
    count_step(counter.handle, newer)
    with pytest.raises(FencedError, match="another iterator of this input"):
        count_step(counter.handle, older)
    step = tf.function(lambda number: (count_step(counter.handle, number), number)[1])
    step(newer)
    with pytest.raises(tf.errors.InvalidArgumentError, match="another iterator of this input"):
        step(older)
    assert counter.requested(counter.iterators) == 2


def test_a_step_in_a_function_fails_after_a_restore_until_the_next_iterator() -> None:
    counter = StepVariable()

    def count(number: tf.Tensor) -> None:
        count_step(counter.handle, number)

    step = tf.function(count)
    _, number = begin(counter.handle)
    step(number)
    counter.invalidate()
    with pytest.raises(tf.errors.InvalidArgumentError, match="captured the iterator"):
        step(number)
    _, number = begin(counter.handle)
    step(number)
    assert counter.requested(counter.iterators) == 1
