"""Workers that send what a test gives them, without threads and without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.reader import BlockReceiver
from distributed_input.rows.blocks import RowBlock


def block_at(first: int, rows: int, last: bool = False) -> RowBlock:
    """Return rows of a dataset of numbers."""
    numbers = np.arange(first, first + rows, dtype=np.int64)
    return RowBlock(first, rows, (numbers.view(np.uint8),), numbers.view(np.uint64), last=last)


def cost_of(rows: int) -> int:
    """Return the cost of a block."""
    return 16 * rows + 512


class GivenCall:
    """A call that was opened.

    Attributes:
        request: what the stream requested.
        granted: the credits that came after the first one.
        closed: how often it was closed.
    """

    def __init__(
        self, request: worker_pb2.StreamRequest, credit: int, receiver: BlockReceiver
    ) -> None:
        self.request = request
        self.receiver: Any = receiver
        self.granted: list[int] = []
        self.closed = 0
        self._row, self._credit, self._sent = request.start_row, credit, 0

    @property
    def has_credit(self) -> bool:
        """Whether the worker may send a block."""
        return self._sent < self._credit

    def send(self, rows: int, last: bool = False) -> None:
        """Send the next rows."""
        block = block_at(self._row, rows, last)
        self._row += rows
        self._sent += cost_of(rows)
        self.receiver.receive(self, block)

    def grant(self, credit: int) -> None:
        assert credit > self._credit
        self._credit = credit
        self.granted.append(credit)

    def close(self) -> None:
        self.closed += 1


class GivenWorkers:
    """A pool with one worker, which is its own link.

    Attributes:
        calls: the calls so far.
        delayed: actions to be called later.
        released: whether each call that was released had failed.
        crashed: what the pool reports about a split that ended several workers.
    """

    size, is_broken, draining = 1, False, False

    def __init__(self) -> None:
        self.calls: list[GivenCall] = []
        self.delayed: list[Callable[[], None]] = []
        self.released: list[bool] = []
        self.crashed = ""

    def break_stream(self) -> None:
        """Break the last call. The stream is opened again."""
        call = self.calls[-1]
        call.receiver.fail(call, UnavailableError("the worker is leaving"), True)
        self.delayed.pop()()

    def crash(self, dataset: str, epoch: int, split: int) -> str:
        return self.crashed

    def acquire(self, keys: object, key: int) -> tuple[str, GivenWorkers]:
        return "worker", self

    def open(
        self, request: worker_pb2.StreamRequest, credit: int, receiver: BlockReceiver
    ) -> GivenCall:
        self.calls.append(GivenCall(request, credit, receiver))
        return self.calls[-1]

    def release(self, worker_id: str, failed: bool) -> None:
        self.released.append(failed)

    def is_draining(self, worker_id: str) -> bool:
        return self.draining

    def suspect(self, worker_id: str) -> None:
        """Ignore that a stream is silent: the worker has a host that answers."""

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.delayed.append(action)
