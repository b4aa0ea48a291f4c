"""The client of a dispatcher, with a real server and a fixed response."""

from __future__ import annotations

import asyncio
import os
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.api.stalls import KILLED
from distributed_input.link import serving, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.runner.display.stats import ConsumerSample, StatusSample, WorkerSample
from distributed_input.runner.display.status_client import StatusClient, busy_share, host_cpus

RESPONSE = dispatcher_pb2.StatusResponse(
    workers=[
        dispatcher_pb2.WorkerInfo(
            worker_id="w",
            address="h:1",
            rows=9,
            busy_seconds=2.5,
            failure=types_pb2.DatasetFailure(dataset="data:rows", message="no file"),
            stalled=[
                types_pb2.StalledSplit(dataset="data:rows", crash=KILLED),  # maybe by chance
                types_pb2.StalledSplit(dataset="data:rows", step="describing", seconds=12),
            ],
        ),
        dispatcher_pb2.WorkerInfo(worker_id="x", address="h:2"),
    ],
    consumers=[
        dispatcher_pb2.ConsumerInfo(
            last=dispatcher_pb2.ConsumerHeartbeatRequest(
                job="train",
                index=1,
                incarnation="i",
                epoch=2,
                rows=100,
                batches=10,
                wait_seconds=1.0,
                wall_seconds=4.0,
                buffer_fill=0.5,
                waiting_for="a worker",
                pauses=True,
            )
        )
    ],
    jobs=[
        types_pb2.Job(name="train", read_amplification=8, split_bytes=9, warnings=["shard it"]),
        types_pb2.Job(name="other", global_batch_size=8),
    ],
)


class _Service:
    def Status(self, _request: object, _context: object) -> dispatcher_pb2.StatusResponse:  # noqa: N802
        return RESPONSE

    def __getattr__(self, _name: str) -> object:
        return lambda *_: None


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("secret")
    return str(file)


@pytest.fixture
def address(token_file: str) -> Iterator[str]:
    service = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
    handler = stubs.service_handler(service, _Service())
    credentials = Credentials.from_args(token_file, {})
    server = serving.make_server([handler], "127.0.0.1:0", credentials)
    server.start()
    yield server.address
    server.stop(0)


def test_a_response_becomes_values(address: str, token_file: str) -> None:
    dispatcher = StatusClient(address, Credentials.from_args(token_file, {}))
    expected = StatusSample(
        consumers=(
            ConsumerSample(
                *("train", 1, "i", 2, 100, 10, 1.0, 4.0, 0.5),
                waiting_for="a worker",
                pauses=True,
            ),
        ),
        workers=(
            WorkerSample(
                *("w", "h:1"),
                rows=9,
                busy=2.5,
                stalled=("describing dataset data:rows has taken 12 s",),
                failure="dataset data:rows: no file",
            ),
            WorkerSample("x", "h:2"),
        ),
        jobs=("train", "other"),
        amplification={"train": 8},
        split_bytes={"train": 9},
        whole=("train",),
        warnings={"train": ("shard it",)},
    )
    assert dispatcher.status(timeout=10) == expected
    assert asyncio.run(dispatcher.status_or_none(timeout=10)) == expected
    dispatcher.close()


def test_an_unreachable_dispatcher_is_none_on_the_loop_and_an_error_elsewhere() -> None:
    dispatcher = StatusClient("127.0.0.1:1", Credentials())
    assert asyncio.run(dispatcher.status_or_none(timeout=0.5)) is None
    with pytest.raises(UnavailableError, match=r"the dispatcher at 127\.0\.0\.1:1 did not respond"):
        dispatcher.status(timeout=0.5)
    dispatcher.close()


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs /proc")
def test_the_cpus_of_this_machine_can_be_read() -> None:
    assert 0 <= busy_share(0.1) <= 1
    before = host_cpus()
    assert before is not None
    assert 0 < before.used <= before.total


def test_only_the_cpus_that_this_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    # user to steal, then guest time, which is also user time.
    times = namedtuple("times", "user nice system idle iowait irq softirq steal guest guest_nice")
    first = [times(90, 0, 0, 1, 0, 0, 0, 0, 0, 0), times(0, 0, 0, 0, 5, 0, 0, 40, 7, 7)]
    second = [times(93, 0, 0, 3, 0, 0, 0, 0, 0, 0), times(0, 0, 0, 0, 5, 0, 0, 45, 9, 9)]
    readings = [[*first, times(*[9] * 10)], [*second, times(*[99] * 10)]]
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _: [0, 1], raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: readings.pop(0))
    assert busy_share(0) == 0.8


def test_a_machine_without_counters_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
    assert busy_share(0) == 0
