"""What Keras's `fit` does with a dataset besides reading it, and must not do with an epoch of ours.

`fit` on a model that was made in a strategy's scope first makes an iterator, takes one batch to
learn shapes, and drops it: of ours, an epoch or the rest of a restored one. And it takes the first
epoch's number of batches for that of all: where the first is the rest of a restored one, the later
ones would be cut off. Neither can be told apart from a training loop but by who calls.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

import tensorflow as tf

_LOOKS = "_maybe_symbolic_build"  # of the Keras trainer
_NEAR = 4  # frames: its loop over epochs is between


def only_looks(caller: FrameType | None) -> bool:
    """Whether `fit` only wants to know what a batch is like."""
    if _epochs_of(caller) is None:
        return False
    frame = caller
    for _ in range(_NEAR):
        if frame is None:
            return False
        if frame.f_code.co_name == _LOOKS:
            return True
        frame = frame.f_back
    return False


def let_epochs_differ(caller: FrameType | None) -> None:
    """Have `fit` read every epoch to its end, where nobody said how many batches it wants."""
    epochs = _epochs_of(caller)
    if epochs is not None and epochs.steps_per_epoch is None and epochs._num_batches is None:  # noqa: SLF001
        epochs._num_batches = sys.maxsize  # noqa: SLF001


def read_whole(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """`dataset` itself, of which `fit` reads every epoch to its end: see `let_epochs_differ`."""
    kind = type(dataset)

    def iterate(self: Any) -> Any:
        here = inspect.currentframe()
        let_epochs_differ(here.f_back if here is not None else None)
        return kind.__iter__(self)

    dataset.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate})
    return dataset


def zeros(spec: Any, rows: int) -> Any:
    """A batch of zeros like those of `spec`, a nested TensorSpec; `rows` where it names none."""

    def one(part: Any) -> Any:
        dims = part.shape.as_list()
        shape = [(rows or 1) if not i and dim is None else dim or 1 for i, dim in enumerate(dims)]
        return tf.zeros(shape, part.dtype)

    return tf.nest.map_structure(one, spec)


def _epochs_of(caller: FrameType | None) -> Any:
    """Keras's loop over epochs, where it is who calls."""
    owner = caller.f_locals.get("self") if caller is not None else None
    ours = type(owner).__module__.startswith("keras.") and hasattr(owner, "steps_per_epoch")
    return owner if ours and hasattr(owner, "_num_batches") else None
