"""The readers of this process: one of each job, and none that a fork inherited.

A fork inherits the socket, but none of the threads. If it read, it would take units from its
parent. If it closed the reader, it would stop its parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Protocol

from distributed_input.api.errors import DistributedInputError, FencedError


class OpenReader(Protocol):
    """A reader with its own connection."""

    @property
    def source(self) -> tuple[Path, str]:
        """The folder of the sidecar, and the full name of the job."""

    def end(self, error: DistributedInputError) -> None:
        """Stop reading; iterators raise `error`. A second call has no effect."""

    def stop(self, error: DistributedInputError) -> None:
        """Stop reading, because the program ends; the trainer may return."""

    def disown(self) -> None:
        """Leave the connection to the parent of this process; iterators raise an error."""


_readers: weakref.WeakSet[OpenReader] = weakref.WeakSet()
_lock = threading.Lock()


def add(reader: OpenReader) -> None:
    """Add a connected reader, and end an older one of the same job: a sidecar serves one.

    Units that were sent to the older reader would occupy the ring until it is freed.
    """
    with _lock:
        older = [other for other in _readers if other.source == reader.source]
        _readers.add(reader)
    for other in older:
        other.end(
            FencedError(
                f"input {reader.source[1]} was opened again: one reader at a time. Close the "
                "first, or give the second a job of its own: connect(..., job=...)"
            )
        )


def stop_all(error: DistributedInputError) -> None:
    """Stop all readers of this process, because the program ends."""
    with _lock:
        readers = list(_readers)
    for reader in readers:
        reader.stop(error)


def _disown_all() -> None:
    """Disown the readers that this process, a fork, has inherited."""
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it
    _lock = threading.Lock()
    inherited = list(_readers)
    _readers.clear()
    for reader in inherited:
        reader.disown()


os.register_at_fork(after_in_child=_disown_all)
