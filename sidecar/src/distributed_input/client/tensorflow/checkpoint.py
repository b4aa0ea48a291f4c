"""The position as a `tf.train.Checkpoint` sees it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

if TYPE_CHECKING:
    from distributed_input.client.input import Input


class InputState(tf.train.experimental.PythonState):
    """Saved, the input's position; restored, where its next iterator goes on.

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, input=train.state)
    """

    def __init__(self, of: Input) -> None:
        super().__init__()
        self._input = of

    def serialize(self) -> bytes:
        """Called when a checkpoint is written."""
        return self._input.position()

    def deserialize(self, string_value: bytes) -> None:
        """Called when a checkpoint is read."""
        self._input.restore(bytes(string_value))

    def _copy_trackable_to_cpu(self, object_map: MutableMapping[Any, Any]) -> None:
        """Called where a checkpoint is to be written later, by a thread: the position of now.

        Without this it would be that of the time of writing, ahead of the weights. The first call
        is eager, a later one the trace of a function that runs with every checkpoint.
        """
        if self not in object_map:
            object_map[self] = _Copy()
        now = tf.py_function(self.serialize, [], tf.string)
        object_map[self].position.assign(now)


class _Copy(tf.train.experimental.PythonState):
    """A position that waits to be written, in the place of an InputState."""

    def __init__(self) -> None:
        super().__init__()
        with tf.init_scope(), tf.device("CPU:0"):
            # Not tf.Variable: a strategy's scope would make that a mirrored one.
            self.position = ResourceVariable(tf.constant(b""), trainable=False, name="position")

    def serialize(self) -> bytes:
        return bytes(self.position.numpy())

    def deserialize(self, string_value: bytes) -> None:
        raise NotImplementedError("a checkpoint is read into the original")
