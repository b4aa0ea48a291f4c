"""A split that runs in a thread of its own, from the call of its entry point to the end.

Python code may depend on its thread: a connection of sqlite3, a `threading.local`, an event loop or
a context variable. The threads of `ComputePool` take turns with the splits, so a Python iterable
cannot run in them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from queue import SimpleQueue

from distributed_input.api.proto import types_pb2
from distributed_input.rows.blocks import RowBlock

_TURN_SECONDS = 0.001
"""What the thread computes for one request: a switch of threads costs as much as cheap rows."""


def is_python(job: types_pb2.Job) -> bool:
    """Return whether a job's dataset is a Python iterable, or a dataset that has no graph."""
    return job.HasField("entry_point") and not job.definitions


class OwnThread:
    """The blocks of a generator that runs in a thread of its own.

    The thread computes only after a request: at least one block, and more for about a millisecond.
    `next` returns them one by one. At most one thread calls it at a time.

    Args:
        start: returns the generator. Called in the thread.
        name: name of the thread.

    Attributes:
        thread: identifier of the thread; 0 before it runs.
    """

    def __init__(self, start: Callable[[], Generator[RowBlock, None, None]], name: str) -> None:
        self.thread = 0
        self._start, self._name = start, name
        self._may_run: SimpleQueue[bool] = SimpleQueue()
        self._made: SimpleQueue[tuple[RowBlock | BaseException, bool]] = SimpleQueue()
        self._is_waiting = True  # the thread needs a request
        self._has_ended = False

    def __next__(self) -> RowBlock:
        if self._has_ended:
            raise StopIteration
        if not self.thread:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self.thread = thread.ident or 0
        if self._is_waiting:
            self._may_run.put(True)
        made, self._is_waiting = self._made.get()
        if isinstance(made, BaseException):
            self._has_ended = True
            raise made
        return made

    def close(self) -> None:
        """Close the generator, in its thread. Do not wait for it."""
        self._has_ended = True
        self._may_run.put(False)

    # The thread.

    def _run(self) -> None:
        blocks = self._start()
        while self._may_run.get():
            turn_ends = time.perf_counter() + _TURN_SECONDS
            is_over = False
            while not is_over:
                try:
                    block = next(blocks)
                except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                    self._made.put((error, True))
                    return
                is_over = time.perf_counter() >= turn_ends
                self._made.put((block, is_over))
        self._made.put((StopIteration(), True))  # for a `next` that began while it was closed
        with contextlib.suppress(Exception):
            blocks.close()
