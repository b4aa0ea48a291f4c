"""A stream does not wait for ever for a worker that is gone."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.sidecar.streams import streams
from distributed_input.sidecar.streams.pool import WorkerPool
from distributed_input.sidecar.streams.streams import SplitStream
from tests.unit.distributed_input.sidecar.streaming import (
    ROWS,
    SECONDS,
    all_rows,
    context,
    info,
    served,
)
from tests.unit.distributed_input.sidecar.system import Worker


class Silent(Worker):
    """Takes a stream, and never says anything."""

    def __init__(self) -> None:
        super().__init__(ROWS)
        self.asked = threading.Event()
        self.over = threading.Event()

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        self.asked.set()
        self.over.wait(3 * SECONDS)
        yield from super().Stream(request, _context)


def test_a_silent_stream_of_a_worker_that_has_left_is_opened_elsewhere(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_SILENT_SECONDS", 0.2)
    silent = Silent()
    left, lives = served(silent), served(Worker(ROWS))
    pool.update([info("left", left)])
    of = context(pool)
    stream = SplitStream(of, 0, 0, 0, None)
    assert silent.asked.wait(SECONDS)
    pool.update([info("lives", lives)])  # the dispatcher's word; the stream itself hears nothing
    assert all_rows(of, stream) == ROWS
    assert of.stats.reconnects == Counter(UnavailableError=1)
    silent.over.set()
    left.stop(0)
    lives.stop(0)


def calls_kept() -> int:
    """Calls whose end gRPC has not told anybody."""
    gc.collect()
    return sum(type(o).__name__ == "ReceiveStatusOnClientOperation" for o in gc.get_objects())


def test_nothing_is_kept_of_streams_that_are_over(pool: WorkerPool) -> None:
    server = served(Worker(ROWS))
    pool.update([info("lives", server)])
    of = context(pool)
    before = calls_kept()
    for _ in range(20):
        assert all_rows(of, SplitStream(of, 0, 0, 0, None)) == ROWS
    deadline = time.monotonic() + SECONDS
    while calls_kept() > before + 5:  # the last ones may be about to end
        assert time.monotonic() < deadline, "gRPC keeps them"
        time.sleep(0.05)
    server.stop(0)


def test_a_slow_stream_of_a_member_is_waited_for(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_SILENT_SECONDS", 0.2)
    slow = Silent()
    server = served(slow)
    pool.update([info("slow", server)])
    of = context(pool)
    stream = SplitStream(of, 0, 0, 0, None)
    threading.Timer(0.8, slow.over.set).start()
    assert all_rows(of, stream) == ROWS
    assert not of.stats.reconnects
    server.stop(0)


class Replaying(Worker):
    """Each call makes some rows again, as many as `steps` says, and breaks; then all is well."""

    def __init__(self, steps: list[int], seconds: float) -> None:
        super().__init__(ROWS)
        self._steps, self._seconds = steps, seconds

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        if not self._steps:
            yield from super().Stream(request, context)
            return
        assert request.tell_replay
        nothing = np.zeros(0, np.uint64)
        for again in range(1, self._steps.pop(0) + 1):
            threading.Event().wait(self._seconds)
            yield blocks.encode(RowBlock(0, 0, (), nothing, replayed=again))
        raise UnavailableError("the worker is leaving")


@pytest.mark.parametrize(
    ("steps", "given_up"),
    [([2, 4, 6, 8], False), ([6, 2, 2, 2, 2], True), ([3, 3, 3, 3, 3, 3], True)],
)
def test_replays_that_come_further_are_progress_and_others_are_not(
    pool: WorkerPool, steps: list[int], given_up: bool
) -> None:
    """Each takes less than the timeout, all together more."""
    server = served(Replaying(steps, seconds=0.1))
    pool.update([info("again", server)])
    of = replace(context(pool), timeout_seconds=1.0)
    stream = SplitStream(of, 0, 0, 3, None)
    if given_up:
        with pytest.raises(UnavailableError, match=r"split 0 .*spec\.sidecar\.timeoutSeconds"):
            all_rows(of, stream)
    else:
        assert all_rows(of, stream) == ROWS - 3
    assert stream.remade >= 6
    server.stop(0)


class Strange(Worker):
    """Its first answer is none that a worker of ours gives; then all is well."""

    def __init__(self, answer: list[bytes]) -> None:
        super().__init__(ROWS)
        self._answers = [answer]

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        yield from self._answers.pop() if self._answers else super().Stream(request, context)


@pytest.mark.parametrize("answer", [[], [b"\xff"], [b"\x7a\x80"]], ids=["nothing", "noise", "cut"])
def test_a_stream_that_is_none_is_opened_again(pool: WorkerPool, answer: list[bytes]) -> None:
    server = served(Strange(answer))
    pool.update([info("strange", server)])
    of = context(pool)
    assert all_rows(of, SplitStream(of, 0, 0, 0, None)) == ROWS
    assert of.stats.reconnects == Counter(UnavailableError=1)
    server.stop(0)


def test_a_bug_in_a_stream_reaches_the_trainer(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served(Worker(ROWS))
    pool.update([info("lives", server)])
    of = context(pool)
    monkeypatch.setattr(SplitStream, "_accept", lambda self, block: 1 // 0)
    with pytest.raises(DistributedInputError, match="the sidecar failed: ZeroDivisionError"):
        all_rows(of, SplitStream(of, 0, 0, 0, None))
    server.stop(0)
