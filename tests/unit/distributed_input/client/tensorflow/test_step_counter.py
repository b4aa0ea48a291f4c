from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.client.tensorflow.step_counter import StepVariable, begin, count_step


def test_steps_are_counted_for_the_two_newest_iterators() -> None:
    counter = StepVariable()
    begin(counter.handle)
    first = counter.iterators
    count_step(counter.handle)
    count_step(counter.handle)
    begin(counter.handle)
    count_step(counter.handle)
    assert (counter.requested(first), counter.requested(counter.iterators)) == (2, 1)


def test_a_step_in_a_function_fails_after_a_restore_until_the_next_iterator() -> None:
    counter = StepVariable()

    def count() -> None:
        count_step(counter.handle)

    step = tf.function(count)
    begin(counter.handle)
    step()
    counter.invalidate()
    with pytest.raises(tf.errors.InvalidArgumentError, match="captured the iterator"):
        step()
    begin(counter.handle)
    step()
    assert counter.requested(counter.iterators) == 1
