"""The number of steps that a loop has requested, counted in a variable, also inside functions."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from distributed_input.api.errors import FencedError
from distributed_input.trainer.epoch_state import OTHER_ITERATOR

_CAPTURED = (
    "the position was restored after iter(dataset), and this function captured the iterator: pass "
    "the iterator to the function as an argument, or restore before iter(dataset)"
)
_INVALID = -(1 << 62)


class StepVariable:
    """Counts the steps of the newest two iterators in a variable on the host.

    The variable has three numbers: the steps requested from the newest iterator, the steps
    requested from the one before, and the number of iterators. A function creates an iterator
    before the consumer can read how far the loop got with the last one.
    """

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            # Not tf.Variable: the scope of a strategy would make it a mirrored variable.
            self._variable = ResourceVariable(
                tf.zeros([3], tf.int64), trainable=False, name="steps_requested"
            )

    @property
    def handle(self) -> tf.Tensor:
        """The handle of the variable."""
        return self._variable.handle

    @property
    def iterators(self) -> int:
        """The number of iterators that were created, which is the number of the newest one."""
        return int(self._variable.numpy()[2])

    def requested(self, iterator: int) -> int:
        """Return the steps that were requested from one of the two newest iterators."""
        newest, before, iterators = self._variable.numpy().tolist()
        return int(newest if iterator == iterators else before)

    def invalidate(self) -> None:
        """Let the next step of the newest iterator fail: a position was restored."""
        _, before, iterators = self._variable.numpy().tolist()
        self._variable.assign([_INVALID, before, iterators])


def begin(counter: tf.Tensor) -> tuple[tf.Operation | None, tf.Tensor]:
    """Count the steps of a new iterator from now on. Return the op, in a graph, and its number."""
    with tf.device("CPU:0"):
        last = _read(counter)
        number = last[2] + 1
        counts = tf.stack([tf.zeros([], tf.int64), last[0], number])
        return tf.raw_ops.AssignVariableOp(resource=counter, value=counts), number


def count_step(counter: tf.Tensor, number: tf.Tensor) -> tf.Operation | None:
    """Count one step of the iterator with this number. Return the op, in a graph.

    Raises:
        FencedError: a newer iterator was created: its steps are counted. In a graph, it is an
            InvalidArgumentError with the same message.
    """
    one = tf.constant([1, 0, 0], tf.int64)
    if tf.executing_eagerly():
        if _read(counter).numpy()[2] != number.numpy():
            raise FencedError(OTHER_ITERATOR)
        tf.raw_ops.AssignAddVariableOp(resource=counter, value=one)
        return None
    with tf.device("CPU:0"):
        checked = tf.debugging.Assert(tf.equal(_read(counter)[2], number), [OTHER_ITERATOR])
    with run_after(checked):
        counted = tf.raw_ops.AssignAddVariableOp(resource=counter, value=one)
    with run_after(counted), tf.device("CPU:0"):
        return tf.debugging.Assert(_read(counter)[0] > 0, [_CAPTURED])


def _read(counter: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=counter, dtype=tf.int64)


def run_after(op: tf.Operation | None) -> AbstractContextManager[Any]:
    """Let the ops that are created in this context run after `op`, in a graph."""
    return contextlib.nullcontext() if op is None else tf.control_dependencies([op])
