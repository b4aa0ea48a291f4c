"""Streams of `SharedProducers` that a test reads block by block."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.compute.task_queue import ComputeTask, Need
from distributed_input.worker.streams.shared_producers import SharedProducers
from distributed_input.worker.streams.shared_stream import SharedStream

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
    """The blocks of a stream. The next one is requested when it is read.

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
        self._woken = threading.Event()
        counters = counters or StreamCounters()
        self.stream = SharedStream(producers, request, counters, self._woken.set)
        self.close = self.stream.close
        self._found: deque[RowBlock] = deque()

    def begin(self) -> None:
        """Request the next block."""
        self._woken.clear()
        self._found.extend(self.stream.next(1))

    def __iter__(self) -> PulledStream:
        return self

    def __next__(self) -> RowBlock:
        while not self._found:
            self.begin()
            if not self._found and self.stream.ended:
                raise StopIteration
            assert self._found or self._woken.wait(_WAIT_SECONDS)
        return self._found.popleft()


def inline_pool() -> Any:
    """Return a pool for a test in one thread."""
    return InlinePool()
