"""Two uses of a dataset by Keras's `fit` that a stream of epochs must recognize.

This module is the only one that depends on internals of Keras's `fit`. It reads the stack frame of
the caller that creates an iterator, and sets a private field of Keras's epoch iterator.

1. `fit` on a model that is not built (on TensorFlow: one that was created in a strategy's scope)
   creates an iterator, takes one batch to learn the shapes, and drops the iterator
   (`_symbolic_build`). For this input, that would skip an epoch, or the rest of a restored one.
   `fit` gets a batch of zeros instead.
2. `fit` assumes that every epoch has as many batches as the first. If the first epoch is the rest
   of a restored one, the later epochs would be cut short. `fit` reads every epoch to its end
   instead, unless the user set `steps_per_epoch`.

Keras has no supported way to do this. These were tried, up to Keras 3.15:

- A Keras callback. `fit` must also be correct without one, and the first iterator is created
  before any callback runs.
- A custom `keras.src.trainers.data_adapters.DataAdapter` for a strategy's dataset, which must be a
  `tf.distribute.DistributedDataset`. For other backends, it is used, and `fit` does the same.
- A very large `cardinality` for the second use. `fit` would show it as the length of the epoch,
  and users of `cardinality` would get a wrong value. `assert_cardinality` fails at the end.
- A built model for the first use. On TensorFlow, `fit` takes the batch even then.
- An iterator that recognizes that it was dropped after one batch. A user's loop may do the same,
  and then the next iterator must start the next epoch.

The caller is the only difference between `fit` and a training loop of the user.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

# Of keras.Model with the TensorFlow backend, and with others.
_BUILD_METHODS = ("_maybe_symbolic_build", "_symbolic_build")
_BUILD_FRAMES = 4  # the most frames between the caller and that method


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
    """Return Keras's epoch loop if it called the method that calls this function."""
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
        if frame.f_code.co_name in _BUILD_METHODS:
            return True
        frame = frame.f_back
    return False
