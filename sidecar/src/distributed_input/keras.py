"""Keras callbacks that save the input's position with the weights.

Keras 3 does not write `tf.train.Checkpoint`s, so the position goes into a file of its own beside
the weights. It names the weights that it belongs to by their hash: what a crash between the two
files leaves behind is noticed, never trained on.

    train = distributed_input.connect("train")
    model.fit(
        train.distribute(strategy),
        callbacks=[distributed_input.keras.BackupAndRestore(train, "backup", save_freq=100)],
    )
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import keras
from keras.src.trainers.epoch_iterator import EpochIterator

from distributed_input.client.input import Input
from distributed_input.errors import PositionError

_SUFFIX = ".input.json"


class _Counted:
    """Counts the batches that `fit` has consumed of the running epoch of the input.

    Only needed for plain datasets: those of `distribute` count by themselves.
    """

    def __init__(self, of: Input) -> None:
        self._of = of
        self._generation = -1
        self._batches = 0
        self._last_batch = -1

    def epoch_begins(self) -> None:
        """Batches are numbered from 0 again."""
        self._last_batch = -1

    def batch_ends(self, batch: int) -> None:
        """`batch` and those before it are consumed."""
        if self._of.generation != self._generation:  # `fit` has made a new iterator
            self._generation, self._batches = self._of.generation, 0
        self._batches += batch - self._last_batch
        self._last_batch = batch

    def position(self) -> bytes:
        """Where `fit` stands."""
        return self._of.position(self._batches)


def _count_batches_anew() -> None:
    """Called at an epoch's end: have `fit` not take its number of batches for that of the next.

    Keras cuts every epoch to the length of the first. After a restore the first is what was left of
    one, and the rest of all others would be lost. Keras hands its iterator to nobody, so
    it is looked for among the callers.
    """
    frame = sys._getframe()  # noqa: SLF001
    while frame.f_back is not None:
        frame = frame.f_back
        iterator = frame.f_locals.get("epoch_iterator")
        if isinstance(iterator, EpochIterator):
            iterator._num_batches = iterator.data_adapter.num_batches  # noqa: SLF001
            return


class BackupAndRestore(keras.callbacks.BackupAndRestore):  # type: ignore[misc]
    """`keras.callbacks.BackupAndRestore`, for the input's position too.

    Args:
        of: the input that `fit` reads.
        backup_dir: as in Keras.
        **kwargs: as in Keras; `save_freq` may be a number of batches.

    A `fit` that goes on within an epoch trains on the rest of it, and counts that as the epoch.
    """

    def __init__(self, of: Input, backup_dir: str, **kwargs: Any) -> None:
        super().__init__(backup_dir, **kwargs)
        self._of = of
        self._counted = _Counted(of)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        super().on_epoch_begin(epoch, logs)
        self._counted.epoch_begins()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        super().on_epoch_end(epoch, logs)
        _count_batches_anew()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See Keras."""
        self._counted.batch_ends(batch)
        super().on_train_batch_end(batch, logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        super()._save_model(*args, **kwargs)
        write_position(self._weights_path, self._counted.position())

    def _load_model(self) -> None:
        super()._load_model()
        if os.path.exists(self._weights_path):
            self._of.restore(read_position(self._weights_path))


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """`keras.callbacks.ModelCheckpoint`, with the input's position beside each file it writes.

    To go on from one: `model.load_weights(path)` and `train.restore(keras.read_position(path))`.
    """

    def __init__(self, of: Input, filepath: str, **kwargs: Any) -> None:
        super().__init__(filepath, **kwargs)
        self._counted = _Counted(of)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        super().on_epoch_begin(epoch, logs)
        self._counted.epoch_begins()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        super().on_epoch_end(epoch, logs)
        _count_batches_anew()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See Keras."""
        self._counted.batch_ends(batch)
        super().on_train_batch_end(batch, logs)

    def _save_model(self, epoch: int, batch: int | None, logs: Any) -> None:
        path = self._get_file_path(epoch, batch, logs)
        before = _stamp(path)
        super()._save_model(epoch, batch, logs)
        if _stamp(path) != before:  # save_best_only may have left it
            write_position(path, self._counted.position())


def write_position(weights: str, position: bytes) -> None:
    """Write `position` beside the file `weights`, whose content it then belongs to."""
    path = Path(weights + _SUFFIX)
    content = {"weights": _hash(weights), "position": base64.b64encode(position).decode()}
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(content))
    part.replace(path)


def read_position(weights: str) -> bytes:
    """The position that was saved with the file `weights`.

    Raises:
        PositionError: there is none, or it belongs to other weights.
    """
    path = Path(weights + _SUFFIX)
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PositionError(
            f"no input position beside {weights} ({error}): the weights were saved without this "
            "callback; delete them to start anew"
        ) from error
    if content["weights"] != _hash(weights):
        raise PositionError(
            f"{path} belongs to other weights than {weights}: the last save was cut off. Restore "
            "an earlier checkpoint, or delete both to start anew"
        )
    return base64.b64decode(content["position"])


def _hash(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
