"""The input's position as a part of a `tf.train.Checkpoint`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable


class InputState(tf.train.experimental.PythonState):
    """The position of an input: saved with a checkpoint, and restored for the next iterator.

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, input=train.state)
    """

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def serialize(self) -> bytes:
        """Return the position for a checkpoint that is being written."""
        return self._source.position()

    def deserialize(self, string_value: bytes) -> None:
        """Restore the position from a checkpoint."""
        self._source.restore(bytes(string_value))

    def _copy_trackable_to_cpu(self, object_map: MutableMapping[Any, Any]) -> None:
        """Copy the current position for a checkpoint that a thread writes later.

        Without this copy, the position would be that of the time of writing: ahead of the
        weights. TensorFlow calls this method once eagerly. Then it calls it in the trace of a
        function that runs with every later checkpoint.
        """
        if self not in object_map:
            object_map[self] = _PositionCopy()
        current = tf.py_function(self.serialize, [], tf.string)
        object_map[self].position.assign(current)


class _PositionCopy(tf.train.experimental.PythonState):
    """A position that is to be written, in place of an InputState."""

    def __init__(self) -> None:
        super().__init__()
        with tf.init_scope(), tf.device("CPU:0"):
            # Not tf.Variable: the scope of a strategy would make it a mirrored variable.
            self.position = ResourceVariable(tf.constant(b""), trainable=False, name="position")

    def serialize(self) -> bytes:
        return bytes(self.position.numpy())

    def deserialize(self, string_value: bytes) -> None:
        raise NotImplementedError("a checkpoint is restored into the original InputState")
