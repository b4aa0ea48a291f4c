from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import TerminalError, UnavailableError
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.link.credentials import Credentials
from distributed_input.link.heartbeats.dispatcher_client import DispatcherClient, _chunks
from tests.unit.distributed_input.dispatcher.builders import job, without_run
from tests.unit.distributed_input.sidecar.system import System, running


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


@pytest.fixture
def client(system: System) -> Iterator[DispatcherClient]:
    client = DispatcherClient(system.address, Credentials(), threading.Event())
    yield client
    client.close()


def test_a_dataset_is_sent_before_its_job(system: System, client: DispatcherClient) -> None:
    traced = job(data=b"traced")
    assert without_run(client.register_job(traced, b"traced", "i")) == traced
    assert system.state.datasets.has(traced.dataset_id)
    assert without_run(client.get_job("train")) == traced


def test_a_call_is_retried_until_it_succeeds(client: DispatcherClient) -> None:
    calls: list[float] = []

    def get() -> Job:
        calls.append(time.monotonic())
        if len(calls) == 3:
            client.register_job(job(), b"", "i")
        return client.get_job("train")

    assert without_run(client.retry(get, time.monotonic() + 10, "get the job")) == job()
    assert len(calls) == 3


def test_a_call_is_not_retried_after_the_deadline(client: DispatcherClient) -> None:
    with pytest.raises(UnavailableError, match=r"get the job: .*spec\.sidecar\.timeoutSeconds"):
        client.retry(lambda: client.get_job("train"), time.monotonic(), "get the job")


def test_a_terminal_error_is_not_retried(client: DispatcherClient) -> None:
    calls: list[Job] = []

    def register() -> Job:
        calls.append(job(name=""))
        return client.register_job(calls[-1], b"", "i")

    with pytest.raises(TerminalError, match=r"register: job\.name"):
        client.retry(register, time.monotonic() + 30, "register")
    assert len(calls) == 1


def test_a_stopping_sidecar_ends_retries(system: System) -> None:
    stopping = threading.Event()
    stopping.set()
    client = DispatcherClient(system.address, Credentials(), stopping)
    with pytest.raises(UnavailableError, match="the sidecar is stopping"):
        client.retry(lambda: client.get_job("train"), time.monotonic() + 30, "get the job")
    client.close()


def test_only_the_first_chunk_has_the_id() -> None:
    data = bytes(range(256)) * 9000
    chunks = list(_chunks("id", data))
    assert [chunk.dataset_id for chunk in chunks] == ["id", "", ""]
    assert b"".join(chunk.data for chunk in chunks) == data
