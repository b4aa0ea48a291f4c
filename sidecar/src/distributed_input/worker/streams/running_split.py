"""A split that runs: in the thread that reads it, or in a thread of its own.

Python code may depend on its thread: a connection of sqlite3, a `threading.local`, an event loop or
a context variable. The threads of `ComputePool` take turns with the splits, so a Python iterable
cannot run in them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from queue import SimpleQueue

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows.blocks import RowBlock, joined
from distributed_input.rows.prefix import Prefix

_TURN_SECONDS = 0.001
"""What the thread computes for one request: a switch of threads costs as much as cheap rows."""
_TURN_BYTES = 1 << 18

StartBlocks = Callable[[], Generator[RowBlock, None, None]]


def is_python(job: types_pb2.Job) -> bool:
    """Return whether a job's dataset is a Python iterable, or a dataset that has no graph."""
    return job.HasField("entry_point") and not job.definitions


class RunningSplit:
    """A stage: the blocks of a generator. At most one thread calls `next` at a time.

    Args:
        request: request of a sidecar, which is the state before the first rows.
        start: returns the generator.

    Attributes:
        thread: identifier of the thread that runs the generator; 0 before it runs.
    """

    def __init__(self, request: worker_pb2.StreamRequest, start: StartBlocks) -> None:
        self.thread = 0
        self._start = start
        self._blocks: Generator[RowBlock, None, None] | None = None
        self._state = Prefix(request.start_row, request.prefix_digest)
        self._error: BaseException | None = None
        self._is_closed = False

    def next(self, limit: int, /) -> Sequence[RowBlock]:
        """Return the next block or a few; none at the end. It takes as long as the user's code.

        Raises:
            BaseException: any error of the generator. Another call raises it again.
        """
        if self._error is not None:
            raise self._error
        if self._is_closed:
            return ()
        try:
            found = self._next(limit)
        except BaseException as error:
            self._error = error
            raise
        for block in found:
            self._state = block.end_prefix if block.rows else self._state
        return found

    def state(self) -> Prefix:
        """Return the rows before the next row."""
        return self._state

    def close(self) -> None:
        """End the generator."""
        self._is_closed = True
        if self._blocks is not None:
            self._blocks.close()

    def _next(self, _limit: int) -> Sequence[RowBlock]:
        self.thread = threading.get_ident()
        if self._blocks is None:
            self._blocks = self._start()
        block = next(self._blocks, None)
        return () if block is None else (block,)


class OwnThread(RunningSplit):
    """A split in a thread of its own, from the call of its entry point to the end.

    The thread computes only after a request: at least one block, and more for about a millisecond.
    """

    def __init__(self, request: worker_pb2.StreamRequest, start: StartBlocks) -> None:
        super().__init__(request, start)
        self._name = f"split-{request.split}"
        self._may_run: SimpleQueue[bool] = SimpleQueue()
        # Blocks, None at the end of a turn, the error or () at the end.
        self._made: SimpleQueue[RowBlock | BaseException | tuple[()] | None] = SimpleQueue()
        self._is_waiting = True  # the thread needs a request

    def close(self) -> None:
        """Close the generator, in its thread. Do not wait for it."""
        self._is_closed = True
        self._may_run.put(False)

    def _next(self, _limit: int) -> Sequence[RowBlock]:
        if not self.thread:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self.thread = thread.ident or 0
        found: list[RowBlock] = []
        # What is ready is not held back: the next block of the turn may take long.
        while not found or not self._made.empty():
            if self._is_waiting:
                self._is_waiting = False
                self._may_run.put(True)
            made = self._made.get()
            if isinstance(made, RowBlock):
                found.append(made)
            elif made is None:
                self._is_waiting = True
                if found:
                    break
            elif isinstance(made, BaseException):
                if not found:
                    raise made
                self._made.put(made)  # the thread has ended
                break
            else:
                self._is_waiting = True
                break
        return joined(found)

    # The thread.

    def _run(self) -> None:
        blocks = self._start()
        while self._may_run.get():
            turn_ends = time.perf_counter() + _TURN_SECONDS
            size = 0
            try:
                for block in blocks:
                    self._made.put(block)
                    size += block.nbytes
                    if size >= _TURN_BYTES or time.perf_counter() >= turn_ends:
                        self._made.put(None)
                        break
                else:
                    self._made.put(())
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                self._made.put(error)
                return
        self._made.put(())  # for a `next` that began while it was closed
        with contextlib.suppress(Exception):
            blocks.close()
