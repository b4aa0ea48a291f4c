"""Streams of `SharedProducers` that a test reads block by block."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.compute.task_queue import ComputeTask, Need
from distributed_input.worker.streams.shared_producers import SharedProducers
from distributed_input.worker.streams.stream_cursor import StreamCursor

_WAIT_SECONDS = 20.0


class InlinePool:
    """Runs each task, and those that follow it, before `submit` returns."""

    waiting = 0

    def submit(self, tasks: Iterable[ComputeTask]) -> None:
        todo = deque(tasks)
        while todo:
            todo.extend(todo.popleft().run())

    def add_need(self, task: ComputeTask, need: Need) -> None:
        task.orders[need.reader] = need.order

    def cancel(self, task: ComputeTask) -> None:
        """Do nothing: a task never waits."""


class PulledStream:
    """The blocks of a stream. It has room for one block while the next one is requested.

    It opens with the first block.

    Args:
        producers: produce the blocks.
        request: request of a sidecar.
        counters: counters of what is sent.
    """

    def __init__(
        self,
        producers: SharedProducers,
        request: worker_pb2.StreamRequest,
        counters: StreamCounters | None = None,
    ) -> None:
        self.cursor: StreamCursor | None = None
        self._producers, self._request = producers, request
        self._counters = counters or StreamCounters()
        self._received: queue.SimpleQueue[RowBlock | Exception] = queue.SimpleQueue()
        self._wants = self._has_ended = False

    @property
    def room(self) -> int:
        return int(self._wants)

    ahead = room

    def put(self, blocks: Sequence[RowBlock]) -> None:
        self._wants = False
        for block in blocks:
            self._received.put(block)

    def fail(self, error: Exception) -> None:
        self._received.put(error)

    def begin(self) -> None:
        """Request the next block."""
        self._wants = True
        if self.cursor is None:
            self.cursor = self._producers.open(self._request, self._counters, self)
        else:
            self._producers.resume([self.cursor])

    def end(self) -> RowBlock:
        """Wait for a block that was requested, and return it."""
        found = self._received.get(timeout=_WAIT_SECONDS)
        self._has_ended = isinstance(found, Exception) or found.last
        if isinstance(found, Exception):
            raise found
        return found

    def __iter__(self) -> PulledStream:
        return self

    def __next__(self) -> RowBlock:
        if self._has_ended:
            raise StopIteration
        if self._received.empty():
            self.begin()
        return self.end()

    def close(self) -> None:
        if self.cursor is not None:
            self._producers.close(self.cursor)


def inline_pool() -> Any:
    """Return a pool for a test in one thread."""
    return InlinePool()
