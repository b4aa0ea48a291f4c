"""Heartbeats report the worker's load, and continue after the dispatcher was unavailable."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.api.proto.dispatcher_pb2 import WorkerHeartbeatRequest
from distributed_input.api.protocol import PROTOCOL
from distributed_input.api.stalls import MAX_STALLED
from distributed_input.link.heartbeats import membership as module
from distributed_input.link.heartbeats.membership import Membership


class Unavailable(grpc.RpcError):
    """The error of a call to a dispatcher that is not running."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection refused"

    def trailing_metadata(self) -> tuple:
        return ()


class FakeDispatcher:
    """Records heartbeats. The first `failures` calls fail."""

    def __init__(self, failures: int = 0, interval: float = 60.0) -> None:
        self.requests: queue.Queue[Any] = queue.Queue()
        self.interval, self._failures = interval, failures

    def WorkerHeartbeat(self, request: Any, timeout: float) -> Any:  # noqa: N802
        if self._failures:
            self._failures -= 1
            raise Unavailable
        self.requests.put(request)
        return dispatcher_pb2.WorkerHeartbeatResponse(interval_seconds=self.interval)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.001)
    running: list[Membership] = []

    def start(dispatcher: Any, load: WorkerHeartbeatRequest) -> Membership:
        membership = Membership(dispatcher, lambda: load, "host:1", "2.19", "pod")
        membership.start()
        running.append(membership)
        return membership

    yield start
    for membership in running:
        membership.stop()
        assert not membership._thread.is_alive()


def test_a_heartbeat_has_the_load_and_the_address(started: Any) -> None:
    dispatcher = FakeDispatcher()
    load = WorkerHeartbeatRequest(rows=70, stalled=[types_pb2.StalledSplit()] * (MAX_STALLED + 1))
    membership = started(dispatcher, load)
    assert dispatcher.requests.get(timeout=20) == WorkerHeartbeatRequest(
        worker_id=membership.worker_id, address="host:1", pod="pod", tf_version="2.19",
        protocol=PROTOCOL, rows=70, stalled=[types_pb2.StalledSplit()] * MAX_STALLED,
    )  # fmt: skip


def test_heartbeats_continue_after_failures(started: Any) -> None:
    dispatcher = FakeDispatcher(failures=3)
    started(dispatcher, WorkerHeartbeatRequest())
    assert dispatcher.requests.get(timeout=20).address == "host:1"


@pytest.mark.parametrize(
    ("sent", "used"), [(0.0, 1.0), (float("nan"), 1.0), (float("inf"), 1.0), (120.0, 60.0)]
)
def test_an_interval_that_is_no_usable_time_is_replaced(sent: float, used: float) -> None:
    dispatcher: Any = FakeDispatcher(interval=sent)
    made = Membership(dispatcher, WorkerHeartbeatRequest, "host:1", "2.19")
    assert made._send() == used


def test_a_heartbeat_can_be_sent_before_its_time(started: Any) -> None:
    dispatcher = FakeDispatcher()
    membership = started(dispatcher, WorkerHeartbeatRequest())
    dispatcher.requests.get(timeout=20)
    assert dispatcher.requests.empty()  # the next one is due in 60 s
    membership.send_now()
    assert dispatcher.requests.get(timeout=20).address == "host:1"


def test_a_bug_does_not_end_the_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.001)
    dispatcher, bugs = FakeDispatcher(), [ValueError("a bug")]

    def load() -> WorkerHeartbeatRequest:
        if bugs:
            raise bugs.pop()
        return WorkerHeartbeatRequest()

    membership = Membership(dispatcher, load, "host:1", "2.19")  # type: ignore[arg-type]
    membership.start()
    assert dispatcher.requests.get(timeout=10).address == "host:1"
    membership.stop()
