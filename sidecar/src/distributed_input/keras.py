"""Keras callbacks that save the input's position with the weights.

Keras 3 does not write `tf.train.Checkpoint`s, so the position is saved in a file next to the
weights. The file contains the hash of the weights that the position belongs to. Before new weights
are written, their position is added to the file, so a crash between the two writes loses nothing.

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
from distributed_input.trainer.input import Input

__all__ = ["BackupAndRestore", "ModelCheckpoint"]
_SUFFIX = ".input.json"


def __dir__() -> list[str]:
    """Return the public names, which completion shows, and not what this module imports."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


class _BatchCounter:
    """The part of both callbacks that counts the batches that `fit` consumed in this epoch.

    The count is used for plain datasets only: those of `distribute` count by themselves.
    """

    def __init__(self, train: Input, path: str, **kwargs: Any) -> None:
        super().__init__(path, **kwargs)  # type: ignore[call-arg]
        self._train = train
        self._generation = -1
        self._batches = 0
        self._last_batch = -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start to count from batch 0."""
        super().on_epoch_begin(epoch, logs)  # type: ignore[misc]
        self._last_batch = -1

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Add the batches that were trained on since the last call."""
        if self._train.generation != self._generation:  # `fit` has created a new iterator
            self._generation, self._batches = self._train.generation, 0
        self._batches += batch - self._last_batch
        self._last_batch = batch
        super().on_train_batch_end(batch, logs)  # type: ignore[misc]

    def _position(self, epoch_over: bool) -> bytes:
        """Return the position of `fit`."""
        return self._train.position(self._batches, epoch_over=epoch_over)


class BackupAndRestore(_BatchCounter, keras.callbacks.BackupAndRestore):  # type: ignore[misc]
    """`keras.callbacks.BackupAndRestore` that also saves and restores the input's position.

    A `fit` that resumes within an epoch trains on the rest of that epoch, and counts it as one.

    Args:
        train: the input that `fit` reads.
        backup_dir: see Keras.
        **kwargs: see Keras; `save_freq` may be a number of batches.
    """

    def __init__(self, train: Input, backup_dir: str, **kwargs: Any) -> None:
        super().__init__(train, backup_dir, **kwargs)
        self._in_epoch = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note that an epoch is running."""
        self._in_epoch = True
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note that no epoch is running."""
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
            self._train.restore(read_position(self._weights_path))
            # `fit` fails in an epoch without batches. One that has ended here counts as done.
            if self._train.skip_ended_epoch():
                self.model._initial_epoch += 1  # noqa: SLF001 - Keras's callback sets it


class ModelCheckpoint(_BatchCounter, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """`keras.callbacks.ModelCheckpoint` that saves the input's position next to each file.

    To resume: `model.load_weights(path)`, then `train.restore(read_position(path))`.
    """

    def __init__(self, train: Input, filepath: str, **kwargs: Any) -> None:
        super().__init__(train, filepath, **kwargs)

    def _save_model(self, epoch: int, batch: int | None, logs: Any) -> None:
        path = self._get_file_path(epoch, batch, logs)
        before = _stamp(path)
        super()._save_model(epoch, batch, logs)
        if _stamp(path) != before:  # with save_best_only, Keras may not have written it
            write_position(path, self._position(batch is None))


def announce_position(weights: str, position: bytes) -> None:
    """Record the position of the weights that are about to replace the file `weights`."""
    try:
        current = _read(weights)
    except (OSError, ValueError):  # it is missing or damaged
        current = {}
    texts = {key: value for key, value in current.items() if isinstance(value, str)}
    _write(weights, {**texts, "next": base64.b64encode(position).decode()})


def write_position(weights: str, position: bytes) -> None:
    """Write the position that belongs to the content of the file `weights`."""
    _write(weights, {"weights": _hash(weights), "position": base64.b64encode(position).decode()})


def _read(weights: str) -> dict[str, Any]:
    """Return the content of the file of positions.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    try:
        content = json.loads(Path(weights + _SUFFIX).read_text())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _write(weights: str, content: dict[str, str]) -> None:
    path = Path(weights + _SUFFIX)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(content))
    part.replace(path)


def read_position(weights: str) -> bytes:
    """Return the position that was saved with the file `weights`.

    Raises:
        PositionError: no position was saved, it is damaged, or it belongs to other weights.
    """
    path = weights + _SUFFIX
    try:
        content = _read(weights)
    except FileNotFoundError as error:
        raise PositionError(
            f"no input position for {weights} ({error}): the weights were saved without this "
            "callback. Delete them to start from the beginning"
        ) from error
    except OSError as error:
        raise PositionError(f"the input position for {weights} cannot be read: {error}") from error
    except ValueError as error:
        raise _damaged(weights, error) from error
    of = content.get("weights")
    # Without a match: a crash after the weights were written, and before this file.
    key = "position" if isinstance(of, str) and of == _hash(weights) else "next"
    try:
        if key in content:
            return base64.b64decode(content[key], validate=True)
    except (ValueError, TypeError) as error:
        raise _damaged(weights, error) from error
    if key == "position" or not isinstance(of, str):
        raise _damaged(weights, f"it has no {key!r}")
    raise PositionError(
        f"{path} belongs to other weights than {weights}: they were written without this callback. "
        "Restore an earlier checkpoint, or delete both to start from the beginning"
    )


def _damaged(weights: str, cause: object) -> PositionError:
    return PositionError(
        f"{weights}{_SUFFIX} is damaged ({cause}), so the input position for {weights} is lost. "
        "Restore an earlier checkpoint, or delete both to start from the beginning"
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
