"""Writes splits behind delivery: a thread writes what streams have got already.

What waits for it is bounded in bytes. A split whose blocks do not fit is not stored: a slow disk
never delays a stream.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable

from distributed_input.rows.blocks import BLOCK_BYTES, RowBlock
from distributed_input.rows.store_folder import StoreFolder
from distributed_input.rows.stored_split import Description, SplitFile
from distributed_input.runtime import logs

MOST_WAITING = 64 << 20
_log = logs.get("worker.store")


class TooLargeError(Exception):
    """A split takes more than half of the store."""


class WriteQueue:
    """Calls functions in one thread, in their order.

    Attributes:
        waiting: bytes that wait, with those that recordings collect.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._changed = threading.Condition()
        self._calls: deque[tuple[Callable[[], None], int]] = deque()
        self._thread: threading.Thread | None = None
        self._is_idle = True

    def admit(self, nbytes: int) -> bool:
        """Count bytes that will wait. Return False if they are too many."""
        with self._changed:
            if self.waiting and self.waiting + nbytes > MOST_WAITING:
                return False
            self.waiting += nbytes
            return True

    def put(self, call: Callable[[], None], nbytes: int = 0) -> None:
        """Have a function called. Then release bytes that were admitted. Its errors are logged."""
        with self._changed:
            self._calls.append((call, nbytes))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="store", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until all functions have returned. Return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._calls and self._is_idle, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_idle = True
                self._changed.notify_all()
                while not self._calls:
                    self._changed.wait()
                self._is_idle = False
                call, nbytes = self._calls.popleft()
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the other splits are stored
                _log.warning("cannot store a split", cause=repr(error))
            del call  # it holds rows
            with self._changed:
                self.waiting -= nbytes


class Recording:
    """A split that is written while it is computed. Its methods do not wait.

    Args:
        folder: where to write.
        queue: runs what writes.
        failed: called with an error, in the queue's thread.
    """

    def __init__(
        self, folder: StoreFolder, queue: WriteQueue, failed: Callable[[Exception], None]
    ) -> None:
        self._folder, self._queue, self._failed = folder, queue, failed
        self._blocks: list[RowBlock] = []
        self._bytes = 0
        self._is_finished = self._is_dropped = False
        # The queue's thread uses these.
        self._file: SplitFile | None = None
        self._is_broken = False

    def add(self, block: RowBlock) -> None:
        """Add the next rows."""
        if self._is_dropped:
            return
        if self._is_broken or not self._queue.admit(block.nbytes):
            self.drop()
            return
        self._blocks.append(block)
        self._bytes += block.nbytes
        # Blocks of few rows are joined: each costs a reader more than many small rows do.
        if self._bytes >= BLOCK_BYTES or self._queue.waiting > MOST_WAITING // 2:
            self._flush()

    def finish(
        self,
        name: str,
        about: Description,
        is_valid: Callable[[], bool],
        stored: Callable[[], None] = lambda: None,
    ) -> None:
        """Store the split, which is complete, unless it was dropped.

        Args:
            name: its name in the folder.
            about: its description, without blocks.
            is_valid: returns whether it may be stored now, in the queue's thread. Raises OSError.
            stored: called when it is stored, in the queue's thread.
        """
        if not self._is_dropped:
            self._is_finished = True
            self._flush()
            publish = functools.partial(self._publish, name, about, is_valid, stored)
            self._queue.put(functools.partial(self._try, publish))

    def drop(self) -> None:
        """Do not store the split, unless it is finished."""
        if not self._is_dropped and not self._is_finished:
            self._is_dropped = True
            self._blocks = []
            self._queue.put(self._remove, self._bytes)

    def _flush(self) -> None:
        blocks, nbytes = self._blocks, self._bytes
        self._blocks, self._bytes = [], 0
        if blocks:
            write = functools.partial(self._write, blocks)
            self._queue.put(functools.partial(self._try, write), nbytes)

    # The thread of the queue.

    def _try(self, work: Callable[[], None]) -> None:
        if self._is_dropped or self._is_broken:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the queue's thread goes on
            self._is_broken = True
            self._remove()
            self._failed(error)

    def _write(self, blocks: list[RowBlock]) -> None:
        file = self._file = self._file or self._folder.create("split")
        before = file.size
        try:
            file.write(blocks)
        finally:
            self._folder.count(file.size - before)
        if file.size > self._folder.max_bytes // 2:
            raise TooLargeError("it takes more than half of the store")
        if self._folder.unfinished > self._folder.max_bytes // 2:
            self._is_broken = True
            self._remove()

    def _publish(
        self,
        name: str,
        about: Description,
        is_valid: Callable[[], bool],
        stored: Callable[[], None],
    ) -> None:
        file = self._file = self._file or self._folder.create("split")  # it may have no rows
        before = file.size
        file.finish(about)
        self._folder.count(file.size - before)
        if is_valid():
            self._folder.publish(name, file.path, file.size, about.seconds)
            self._folder.unfinished -= file.size
            self._file = None
            stored()
        else:
            self._remove()

    def _remove(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self._folder.unfinished -= file.size
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                file.path.unlink(missing_ok=True)
