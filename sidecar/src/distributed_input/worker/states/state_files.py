"""Saved states in a folder, for jobs that are restored after all their processes have ended.

A checkpoint is older than the newest state of its splits. So a split keeps several states: the
distances between them grow with their age. A restored job then produces again about as much as a
quarter of the work that was lost since the checkpoint, at most.

The folder is a cache. Several workers write to it, and files may disappear at any time. It may be
on a volume that does not respond, so another thread writes, and reading has a deadline.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distributed_input.worker.states.saved_state import StateTimeoutError, within

MAX_BYTES = 1 << 27
_MAX_SECONDS = 7 * 86400.0
_SUFFIX, _USED, _PART = ".state", ".used", ".part"
_NAME = re.compile(r"([0-9a-f]+)-(\d+)\.state")
_MAX_GAP = 0.25  # of the distance to the newest state
_MAX_QUEUED = 8
_READ_SECONDS = 5.0


@dataclass(frozen=True)
class StoredState:
    """A state that was taken from the folder.

    Attributes:
        token: the state.
    """

    token: bytes
    _path: Path

    def put_back(self) -> None:
        """Make the state available again, because it could be used."""
        with contextlib.suppress(OSError):
            os.rename(_used(self._path), self._path)

    def remove(self) -> None:
        """Remove the state, because it could not be used."""
        _used(self._path).unlink(missing_ok=True)


class StateFiles:
    """The states in one folder.

    Args:
        folder: the folder; created when the first state is written.
        max_bytes: maximum size of all files.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._queue: queue.Queue[tuple[bytes, int, bytes]] = queue.Queue(_MAX_QUEUED)
        self._writer: threading.Thread | None = None

    def write(self, key: bytes, row: int, token: bytes) -> None:
        """Write a state in another thread. It is dropped if too many wait already.

        Args:
            key: key of the split.
            row: number of rows before the state.
            token: the state.
        """
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_all, name="states", daemon=True)
            self._writer.start()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait((key, row, token))

    def flush(self) -> None:
        """Wait until all states are written."""
        self._queue.join()

    def _write_all(self) -> None:
        while True:
            state = self._queue.get()
            try:
                self._write(*state)
            finally:
                self._queue.task_done()

    def _write(self, key: bytes, row: int, token: bytes) -> None:
        """Write a state. Remove states of the split that are close to others, and old files."""
        path = self._folder / f"{key.hex()}-{row}{_SUFFIX}"
        part = path.with_suffix(f".{secrets.token_hex(4)}{_PART}")
        with contextlib.suppress(OSError):  # for example, the disk is full
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                part.write_bytes(token)
                os.replace(part, path)
            finally:
                part.unlink(missing_ok=True)
            for superfluous in rows_to_drop(self._rows(key)):
                self._path(key, superfluous).unlink(missing_ok=True)
            self._prune()

    def take(self, key: bytes, max_row: int) -> StoredState | None:
        """Return the last state of a split at or before a row, and hide it from others.

        A state that breaks the worker stays hidden, so that it does not break the next one.
        """
        try:
            return within(_READ_SECONDS, "read a state", lambda: self._take(key, max_row))
        except StateTimeoutError:
            return None

    def _take(self, key: bytes, max_row: int) -> StoredState | None:
        for row in sorted(self._rows(key), reverse=True):
            if row <= max_row:
                path = self._path(key, row)
                with contextlib.suppress(OSError):
                    os.rename(path, _used(path))
                    return StoredState(_used(path).read_bytes(), path)
        return None

    def _path(self, key: bytes, row: int) -> Path:
        return self._folder / f"{key.hex()}-{row}{_SUFFIX}"

    def _rows(self, key: bytes) -> list[int]:
        names = (_NAME.fullmatch(entry.name) for entry in _scan(self._folder))
        return [int(name[2]) for name in names if name is not None and name[1] == key.hex()]

    def _prune(self) -> None:
        """Remove files that are too old, and then the oldest ones until the rest fits."""
        found = []
        for entry in _scan(self._folder):
            with contextlib.suppress(OSError):
                stat = entry.stat()
                found.append((stat.st_mtime, stat.st_size, entry.path))
        left = sum(size for _, size, _ in found)
        for changed, size, path in sorted(found):
            if left <= self._max_bytes and time.time() - changed <= _MAX_SECONDS:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            left -= size


def rows_to_drop(rows: Iterable[int]) -> list[int]:
    """Return the states of a split that are not needed.

    For each row, a remaining state is before it at a distance of at most a quarter of the distance
    from it to the newest state, or it is the next one before it that ever existed.

    Args:
        rows: number of rows before each state.
    """
    kept: Sequence[int] = sorted(set(rows))
    dropped: list[int] = []
    at = len(kept) - 2
    while at > 0:
        before, after = kept[at - 1], kept[at + 1]
        if after - before <= _MAX_GAP * (kept[-1] - after):
            dropped.append(kept[at])
            kept = [*kept[:at], *kept[at + 1 :]]
        at -= 1
    return dropped


def _used(path: Path) -> Path:
    return path.with_suffix(_USED)


def _scan(folder: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from entries
