"""The position as a `tf.train.Checkpoint` sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

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
