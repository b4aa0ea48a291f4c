"""The dispatcher as a process: its start, service, restart and end."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from distributed_input.api.environment import TOKEN_ENV
from distributed_input.api.errors import TerminalError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2 as wire
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link import serving, statuses
from distributed_input.link.credentials import Credentials
from distributed_input.link.stubs import Stub
from testing.processes import forks

HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]
REFLECTION: Any = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
SERVICE = wire.DESCRIPTOR.services_by_name["Dispatcher"]
TOKEN = "an-integration-token"
MIB = 1 << 20


class Dispatcher:
    """A running dispatcher process."""

    def __init__(self, folder: Path, *flags: str, listen: str = "127.0.0.1:0") -> None:
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        argv = ["--listen", listen, "--token-file", str(self.token_file), *flags]
        self.process = forks.shared().start(
            "distributed_input.dispatcher.main", "dispatcher", folder, argv
        )
        content = self.process.ready()
        assert content["pid"] == self.process.pid
        self.address: str = content["address"]
        self.metrics: str | None = content["metrics"]

    def stop(self) -> None:
        """Kill the process, also if it is stopped."""
        self.process.kill()


def command() -> list[str]:
    return [sys.executable, "-m", "distributed_input.dispatcher"]


@contextmanager
def running_dispatcher(
    folder: Path, *flags: str, listen: str = "127.0.0.1:0"
) -> Iterator[Dispatcher]:
    dispatcher = Dispatcher(folder, *flags, listen=listen)
    try:
        yield dispatcher
    finally:
        dispatcher.stop()


@contextmanager
def open_stub(address: str, token: str | None = TOKEN) -> Iterator[tuple[Stub, grpc.Channel]]:
    credentials = Credentials.from_args(None, {TOKEN_ENV: token} if token else {})
    with serving.open_channel(address, credentials, private=True) as channel:
        yield Stub(channel, SERVICE), channel


@pytest.fixture
def dispatcher(tmp_path):
    with running_dispatcher(tmp_path, "--metrics-listen", "127.0.0.1:0") as started:
        yield started


@pytest.fixture
def stub(dispatcher):
    with open_stub(dispatcher.address) as (stub, _):
        yield stub


def beat(stub: Stub, **fields: Any) -> wire.ConsumerHeartbeatResponse:
    fields = {"index": 0, "count": 1, "incarnation": "1", "job": "train", **fields}
    request = wire.ConsumerHeartbeatRequest(protocol=PROTOCOL, **fields)
    answer: wire.ConsumerHeartbeatResponse = stub.ConsumerHeartbeat(request, timeout=5)
    return answer


def worker_beat(stub: Stub, name: str) -> None:
    request = wire.WorkerHeartbeatRequest(worker_id=name, address=f"{name}:1", protocol=PROTOCOL)
    stub.WorkerHeartbeat(request, timeout=5)


def register(stub: Stub, **fields: Any) -> Job:
    job = Job(name="train", dataset_id="d", num_splits=4, partitions=2, **fields)
    registered: Job = stub.RegisterJob(wire.RegisterJobRequest(job=job), timeout=5).job
    return registered


def status(stub: Stub) -> wire.StatusResponse:
    shown: wire.StatusResponse = stub.Status(wire.StatusRequest(), timeout=5, wait_for_ready=True)
    return shown


def chunks(data: bytes) -> Iterator[wire.DatasetChunk]:
    name = hashlib.sha256(data).hexdigest()
    for start in range(0, len(data), MIB):
        yield wire.DatasetChunk(dataset_id=name, data=data[start : start + MIB])


def test_health_and_reflection_answer(dispatcher):
    with open_stub(dispatcher.address, token=None) as (_, channel):
        health = Stub(channel, HEALTH)
        for service in ("", SERVICE.full_name):
            request = health_pb2.HealthCheckRequest(service=service)
            assert health.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
    with open_stub(dispatcher.address) as (_, channel):
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        reflection = Stub(channel, REFLECTION)
        (answer,) = reflection.ServerReflectionInfo(iter([asked]), timeout=5)
    assert SERVICE.full_name in {s.name for s in answer.list_services_response.service}


@pytest.mark.parametrize("token", [None, "another-token"])
def test_calls_without_the_right_token_are_refused(dispatcher, token):
    with open_stub(dispatcher.address, token) as (stub, _):
        with pytest.raises(grpc.RpcError) as caught:
            status(stub)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    error = statuses.from_rpc_error(caught.value, "asking")
    assert isinstance(error, TerminalError)
    assert "--token-file" in str(error)
    assert TOKEN not in str(error)
    assert TOKEN not in dispatcher.process.log.read_text()


def test_a_token_can_be_rotated_without_a_restart(dispatcher):
    assert_served(dispatcher, TOKEN)
    dispatcher.token_file.write_text("the-next-token")
    time.sleep(1.1)
    assert_served(dispatcher, "the-next-token")
    assert_served(dispatcher, TOKEN)


def assert_served(dispatcher: Dispatcher, token: str) -> None:
    with open_stub(dispatcher.address, token) as (stub, _):
        assert status(stub).dispatcher_id


def test_metrics_and_health_over_http(dispatcher, stub):
    worker_beat(stub, "w")
    with urllib.request.urlopen(f"http://{dispatcher.metrics}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'distributed_input_dispatcher_workers{state="serving"} 1.0' in text
    with urllib.request.urlopen(f"http://{dispatcher.metrics}/healthz", timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_the_grace_period(dispatcher, stub, number):
    status(stub)
    dispatcher.process.signal(number)
    assert dispatcher.process.wait(10) == 0
    lines = [json.loads(line) for line in dispatcher.process.log.read_text().splitlines()]
    assert [line["message"] for line in lines] == ["serving", "stopping"]
    assert {line["part"] for line in lines} == {"dispatcher"}


def test_a_port_in_use_is_one_line_and_status_2(dispatcher):
    for flag in ("--listen", "--metrics-listen"):
        taken = dispatcher.address if flag == "--listen" else dispatcher.metrics
        done = subprocess.run([*command(), flag, taken], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2
        assert done.stderr.startswith(f"distributed-input dispatcher: {flag} {taken}: cannot bind")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen", "0.0.0.0:0"], "no token is set"),
        (["--listen", "nowhere"], "--listen: 'nowhere' is not host:port"),
        (["--token-file", "/no/such/file"], "token file /no/such/file: No such file"),
        (["--expiry-seconds", "1"], "--expiry-seconds 1 is below twice"),
        (["--ready-file", "/no/such/folder/ready"], "--ready-file /no/such/folder/ready"),
    ],
)
def test_bad_configuration_ends_with_status_2(flags, message):
    env = {key: value for key, value in os.environ.items() if key != TOKEN_ENV}
    done = subprocess.run([*command(), *flags], capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dataset_of_50_mb(stub):
    data = os.urandom(50_000_000)
    stub.PutDataset(chunks(data), timeout=60)
    got = bytearray()
    request = wire.GetDatasetRequest(dataset_id=hashlib.sha256(data).hexdigest())
    for chunk in stub.GetDataset(request, timeout=60):
        assert len(chunk.data) <= MIB
        got += chunk.data
    assert got == data


def test_it_starts_empty_after_a_crash_and_registers_members_again(tmp_path):
    """Clients keep their channel and need no restart."""
    with running_dispatcher(tmp_path) as before, open_stub(before.address) as (stub, _):
        worker_beat(stub, "w")
        register(stub)
        assert not beat(stub).job_unknown
        first = status(stub)
        before.process.kill()
        with pytest.raises(grpc.RpcError) as caught:
            beat(stub)
        assert isinstance(statuses.from_rpc_error(caught.value, "x"), UnavailableError)
        with running_dispatcher(tmp_path, listen=before.address):
            again = status(stub)
            assert again.dispatcher_id != first.dispatcher_id
            assert (len(again.workers), len(again.consumers), len(again.jobs)) == (0, 0, 0)
            assert beat(stub, facts=[wire.PartitionFact(split_rows=[3])]).job_unknown
            worker_beat(stub, "w")
            register(stub)
            answer = beat(stub)
            assert not answer.job_unknown
            assert [info.worker_id for info in answer.workers] == ["w"]
            assert len(status(stub).consumers) == 1


def test_a_stopped_and_continued_dispatcher_keeps_its_members(tmp_path):
    flags = ("--expiry-seconds", "1.5", "--heartbeat-seconds", "0.5")
    with (
        running_dispatcher(tmp_path, *flags) as dispatcher,
        open_stub(dispatcher.address) as (stub, _),
    ):
        register(stub)
        worker_beat(stub, "w")
        beat(stub)
        dispatcher.process.signal(signal.SIGSTOP)
        time.sleep(3)
        dispatcher.process.signal(signal.SIGCONT)
        shown = status(stub)
        assert (len(shown.workers), len(shown.consumers)) == (1, 1)
        time.sleep(2.5)
        shown = status(stub)
        assert (len(shown.workers), len(shown.consumers)) == (0, 0)


def test_an_open_stream_detects_a_hung_server_within_seconds(dispatcher):
    """The call has no deadline; the connection itself detects it."""
    with open_stub(dispatcher.address) as (_, channel):
        watched = Stub(channel, HEALTH).Watch(health_pb2.HealthCheckRequest())
        next(watched)
        dispatcher.process.signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            next(watched)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - began < 20


def test_a_second_trainer_with_the_same_index_fences_the_first(stub):
    register(stub)
    assert not beat(stub, incarnation="1").fenced
    assert not beat(stub, incarnation="2").fenced
    answer = beat(stub, incarnation="1")
    assert answer.fenced
    assert "incarnation 2" in answer.fenced_by
