"""Keras callbacks that save the input's position with the weights.

Keras 3 does not write `tf.train.Checkpoint`s, so the position goes into a file of its own beside
the weights. It names the weights that it belongs to by their hash, and before they are written it
names the position that their successors will have: a crash between the two files loses nothing.

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
from pathlib import Path
from typing import Any

import keras

from distributed_input.api.errors import PositionError
from distributed_input.client.input import Input

_SUFFIX = ".input.json"


class _Counting:
    """What both callbacks do: count the batches that `fit` has consumed of the running epoch.

    Only needed for plain datasets: those of `distribute` count by themselves.
    """

    def __init__(self, of: Input, path: str, **kwargs: Any) -> None:
        super().__init__(path, **kwargs)  # type: ignore[call-arg]
        self._of = of
        self._generation = -1
        self._batches = 0
        self._last_batch = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        super().on_epoch_begin(epoch, logs)  # type: ignore[misc]
        self._last_batch = -1  # batches are numbered from 0 again

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """See Keras."""
        if self._of.generation != self._generation:  # `fit` has made a new iterator
            self._generation, self._batches = self._of.generation, 0
        self._batches += batch - self._last_batch
        self._last_batch = batch
        super().on_train_batch_end(batch, logs)  # type: ignore[misc]

    def _position(self, epoch_over: bool) -> bytes:
        """Where `fit` stands."""
        return self._of.position(self._batches, epoch_over=epoch_over)


class BackupAndRestore(_Counting, keras.callbacks.BackupAndRestore):  # type: ignore[misc]
    """`keras.callbacks.BackupAndRestore`, for the input's position too.

    Args:
        of: the input that `fit` reads.
        backup_dir: as in Keras.
        **kwargs: as in Keras; `save_freq` may be a number of batches.

    A `fit` that goes on within an epoch trains on the rest of it, and counts that as the epoch.
    """

    def __init__(self, of: Input, backup_dir: str, **kwargs: Any) -> None:
        super().__init__(of, backup_dir, **kwargs)
        self._in_epoch = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        self._in_epoch = True
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """See Keras."""
        self._in_epoch = False
        super().on_epoch_end(epoch, logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        position = self._position(not self._in_epoch)
        os.makedirs(self.backup_dir, exist_ok=True)
        announce_position(self._weights_path, position)
        super()._save_model(*args, **kwargs)
        write_position(self._weights_path, position)

    def _load_model(self) -> None:
        super()._load_model()
        if os.path.exists(self._weights_path):
            self._of.restore(read_position(self._weights_path))


class ModelCheckpoint(_Counting, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """`keras.callbacks.ModelCheckpoint`, with the input's position beside each file it writes.

    To go on from one: `model.load_weights(path)` and `train.restore(keras.read_position(path))`.
    """

    def __init__(self, of: Input, filepath: str, **kwargs: Any) -> None:
        super().__init__(of, filepath, **kwargs)

    def _save_model(self, epoch: int, batch: int | None, logs: Any) -> None:
        path = self._get_file_path(epoch, batch, logs)
        before = _stamp(path)
        super()._save_model(epoch, batch, logs)
        if _stamp(path) != before:  # save_best_only may have left it
            write_position(path, self._position(batch is None))


def announce_position(weights: str, position: bytes) -> None:
    """Say that the file `weights` is about to be replaced by one that `position` belongs to."""
    try:
        known = json.loads(Path(weights + _SUFFIX).read_text())
    except (OSError, ValueError):
        known = {}
    _write(weights, {**known, "next": base64.b64encode(position).decode()})


def write_position(weights: str, position: bytes) -> None:
    """Write `position` beside the file `weights`, whose content it then belongs to."""
    _write(weights, {"weights": _hash(weights), "position": base64.b64encode(position).decode()})


def _write(weights: str, content: dict[str, str]) -> None:
    path = Path(weights + _SUFFIX)
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
    if content.get("weights") == _hash(weights):
        return base64.b64decode(content["position"])
    if "next" in content:  # cut off between the weights and this file
        return base64.b64decode(content["next"])
    raise PositionError(
        f"{path} belongs to other weights than {weights}: they were written without this callback. "
        "Restore an earlier checkpoint, or delete both to start anew"
    )


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
