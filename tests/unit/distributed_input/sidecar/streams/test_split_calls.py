from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.sidecar.streams.split_calls import SplitCall, SplitCalls
from tests.unit.distributed_input.sidecar.streams.given_workers import block_at, cost_of
from tests.unit.distributed_input.sidecar.streams.streaming import SECONDS
from tests.unit.distributed_input.sidecar.system import eventually

REQUEST = worker_pb2.StreamRequest(split=7)


class GivenStream:
    """A call that brings what the test gives it.

    Attributes:
        read: number of answers that were read.
        cancelled: whether the sidecar cancelled it before its end.
    """

    def __init__(self) -> None:
        self.read = 0
        self.cancelled = self.has_ended = False
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def send(self, *answers: RowBlock | bytes | None) -> None:
        for answer in answers:
            encoded = blocks.encode(answer) if isinstance(answer, RowBlock) else answer
            self._answers.put(encoded)

    def cancel(self) -> None:
        self.cancelled = self.cancelled or not self.has_ended
        self._answers.put(None)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        answer = None if self.has_ended else self._answers.get()
        if answer is None:
            self.has_ended = True
            raise StopIteration
        self.read += 1
        return answer


class Receiver:
    """Records what it gets. It closes its call after the last block, as `SplitStream` does."""

    def __init__(self) -> None:
        self.blocks: list[RowBlock] = []
        self.errors: list[tuple[DistributedInputError, bool]] = []

    def receive(self, call: SplitCall, block: RowBlock) -> None:
        self.blocks.append(block)
        if block.last:
            call.close()

    def fail(self, call: SplitCall, error: DistributedInputError, explained: bool) -> None:
        self.errors.append((error, explained))


def opened(
    credit: int, receiver: Receiver | None = None
) -> tuple[SplitCall, GivenStream, Receiver]:
    stream, receiver = GivenStream(), receiver or Receiver()

    class Stub:
        def Stream(self, request: worker_pb2.StreamRequest) -> GivenStream:  # noqa: N802
            assert request is REQUEST
            return stream

    stub: Any = Stub()
    return SplitCalls(stub, "w").open(REQUEST, credit, receiver), stream, receiver


def threads() -> int:
    return sum(one.name == "split-7" for one in threading.enumerate())


def test_blocks_are_read_as_far_as_there_is_credit() -> None:
    call, stream, receiver = opened(credit=2 * cost_of(3))
    stream.send(*(block_at(first, 3) for first in range(0, 15, 3)))
    eventually(lambda: len(receiver.blocks) == 2)
    call.grant(2 * cost_of(3) + 1)
    eventually(lambda: len(receiver.blocks) == 3)
    assert not threading.Event().wait(0.05)  # enough for another block
    assert (len(receiver.blocks), stream.read) == (3, 3)
    call.close()
    eventually(lambda: not threads())
    assert stream.cancelled
    assert not receiver.errors


def test_nothing_is_read_without_credit() -> None:
    call, stream, receiver = opened(credit=0)
    stream.send(block_at(0, 3))
    assert not threading.Event().wait(0.05)  # enough for a block
    assert stream.read == 0
    call.grant(1)
    eventually(lambda: receiver.blocks)
    call.close()
    eventually(lambda: not threads())


class OpenReceiver(Receiver):
    """Does not close its call."""

    def receive(self, call: SplitCall, block: RowBlock) -> None:
        self.blocks.append(block)


@pytest.mark.parametrize("kind", [Receiver, OpenReceiver])
def test_a_call_is_read_to_its_end_and_not_cancelled(kind: type[Receiver]) -> None:
    """Cancelled calls count as broken at the worker."""
    _, stream, receiver = opened(credit=1000, receiver=kind())
    stream.send(block_at(0, 3), block_at(3, 0, last=True))
    eventually(lambda: len(receiver.blocks) == 2)
    stream.send(None)
    eventually(lambda: not threads())
    assert stream.has_ended
    assert (stream.cancelled, receiver.errors) == (False, [])


@pytest.mark.parametrize(
    ("answer", "text"), [(None, "ended the stream within"), (b"\xff", "not a block of rows")]
)
def test_a_wrong_answer_is_an_error_of_the_worker(answer: bytes | None, text: str) -> None:
    _, stream, receiver = opened(credit=10_000)
    stream.send(block_at(0, 3), answer)
    eventually(lambda: receiver.errors)
    ((error, explained),) = receiver.errors
    assert isinstance(error, UnavailableError)
    assert ("worker w: " in str(error), text in str(error), explained) == (True, True, True)
    eventually(lambda: not threads())


def test_a_closed_call_that_waits_for_credit_ends() -> None:
    call, stream, receiver = opened(credit=1)
    stream.send(block_at(0, 3))
    eventually(lambda: receiver.blocks)
    (thread,) = (one for one in threading.enumerate() if one.name == "split-7")
    assert thread.daemon, "a worker that hangs does not keep the sidecar alive"
    call.close()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_bug_of_the_receiver_is_reported() -> None:
    class Faulty(Receiver):
        def receive(self, call: SplitCall, block: RowBlock) -> None:
            raise ZeroDivisionError

    _, stream, receiver = opened(1, Faulty())
    stream.send(block_at(0, 3))
    eventually(lambda: receiver.errors)
    assert "the sidecar failed: ZeroDivisionError" in str(receiver.errors[0][0])
    eventually(lambda: not threads())
