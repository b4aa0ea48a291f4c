"""The dispatcher's service on a real server."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator

import grpc
import pytest

from distributed_input.api.proto import dispatcher_pb2 as wire
from distributed_input.api.proto import types_pb2
from distributed_input.dispatcher import service as served
from distributed_input.dispatcher.clock import RunningClock
from distributed_input.link import serving, stubs
from distributed_input.link.credentials import Credentials
from tests.unit.distributed_input.dispatcher.builders import (
    consumer,
    job,
    state,
    without_run,
    worker,
)

MIB = 1 << 20


@pytest.fixture
def known():
    return state(dataset_bytes=8 * MIB)


@pytest.fixture
def service(known):
    return served.DispatcherService(known, RunningClock())


@pytest.fixture
def stub(service):
    handler = stubs.service_handler(served.DESCRIPTOR, service)
    server = serving.make_server([handler], "127.0.0.1:0", Credentials())
    server.start()
    with serving.open_channel(server.address, Credentials(), private=True) as channel:
        yield stubs.Stub(channel, served.DESCRIPTOR)
    server.stop(0)


def chunks(data: bytes, name: str | None = None, size: int = MIB) -> Iterator[wire.DatasetChunk]:
    name = hashlib.sha256(data).hexdigest() if name is None else name
    for start in range(0, len(data), size):
        yield wire.DatasetChunk(dataset_id="" if start else name, data=data[start : start + size])


def get(stub: stubs.Stub, name: str) -> bytes:
    request = wire.GetDatasetRequest(dataset_id=name)
    return b"".join(chunk.data for chunk in stub.GetDataset(request, timeout=20))


def code_of(error: pytest.ExceptionInfo[grpc.RpcError]) -> grpc.StatusCode:
    return error.value.code()


def test_a_job_and_its_heartbeats_over_the_wire(stub):
    records = [types_pb2.SkippedRecord(index=index) for index in (6, 7)]
    beat = worker(skipped=records)
    assert stub.WorkerHeartbeat(beat, timeout=5).interval_seconds == 1.0
    assert stub.ConsumerHeartbeat(consumer(), timeout=5).job_unknown
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetJob(wire.GetJobRequest(name="train"), timeout=5)
    assert code_of(caught) is grpc.StatusCode.NOT_FOUND
    assert without_run(stub.RegisterJob(wire.RegisterJobRequest(job=job()), timeout=5).job) == job()
    assert without_run(stub.GetJob(wire.GetJobRequest(name="train"), timeout=5).job) == job()
    answer = stub.ConsumerHeartbeat(consumer(), timeout=5)
    assert [info.worker_id for info in answer.workers] == ["w"]
    shown = stub.Status(wire.StatusRequest(max_skipped=1), timeout=5)
    assert [one.index for one in shown.skipped] == [7]
    assert (len(shown.workers), len(shown.consumers), len(shown.jobs)) == (1, 1, 1)


def test_an_uploaded_dataset_can_be_downloaded(stub):
    data = bytes(range(256)) * 10_000
    name = hashlib.sha256(data).hexdigest()
    stub.PutDataset(chunks(data, size=300_000), timeout=20)
    assert get(stub, name) == data


def test_a_stored_dataset_is_not_uploaded_again(stub):
    data = b"x" * (4 * MIB)
    stub.PutDataset(chunks(data), timeout=20)
    sent = []

    def counted() -> Iterator[wire.DatasetChunk]:
        for chunk in chunks(data, size=64):
            sent.append(1)
            yield chunk

    stub.PutDataset(counted(), timeout=20)
    assert len(sent) < 4 * MIB // 64


@pytest.mark.parametrize(
    ("sent", "code", "message"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT, "no chunk"),
        (list(chunks(b"data", "no-id")), grpc.StatusCode.INVALID_ARGUMENT, "dataset_id"),
        (list(chunks(b"data", "0" * 64)), grpc.StatusCode.INVALID_ARGUMENT, "SHA-256"),
        (list(chunks(b"x" * (9 * MIB))), grpc.StatusCode.FAILED_PRECONDITION, "--max-dataset"),
    ],
)
def test_invalid_datasets_are_rejected_and_not_stored(stub, known, sent, code, message):
    with pytest.raises(grpc.RpcError, match=message) as caught:
        stub.PutDataset(iter(sent), timeout=20)
    assert code_of(caught) is code
    assert (known.datasets.size, known.datasets.count) == (0, 0)


def test_an_interrupted_upload_releases_its_bytes(stub, known):
    started, leave = threading.Event(), threading.Event()

    def broken() -> Iterator[wire.DatasetChunk]:
        # Not the whole dataset: gRPC may end the stream before it cancels the call.
        yield from itertools.islice(chunks(b"x" * (3 * MIB)), 2)
        started.set()
        leave.wait(10)

    call = stub.PutDataset.future(broken())
    assert started.wait(10)
    wait_until(lambda: known.datasets.size == 2 * MIB)
    call.cancel()
    leave.set()
    wait_until(lambda: known.datasets.size == 0)


def test_downloads_of_missing_datasets_fail(stub):
    for name, code in (
        ("0" * 64, grpc.StatusCode.NOT_FOUND),
        ("../etc", grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            get(stub, name)
        assert code_of(caught) is code


def test_too_many_transfers_are_retryable_and_do_not_block_heartbeats(stub, service):
    taken = 0
    while service._transfers.acquire(blocking=False):
        taken += 1
    assert taken < served.THREADS
    with pytest.raises(grpc.RpcError) as caught:
        get(stub, "0" * 64)
    assert code_of(caught) is grpc.StatusCode.UNAVAILABLE
    assert stub.WorkerHeartbeat(worker(), timeout=5)
    service._transfers.release()
    with pytest.raises(grpc.RpcError) as caught:
        get(stub, "0" * 64)
    assert code_of(caught) is grpc.StatusCode.NOT_FOUND


def test_a_transfer_has_a_time_limit(stub, service, monkeypatch):
    monkeypatch.setattr(served, "_TRANSFER_SECONDS", 0.3)
    leave = threading.Event()

    def stalled() -> Iterator[wire.DatasetChunk]:
        yield from chunks(b"x")
        leave.wait(20)

    with pytest.raises(grpc.RpcError) as caught:
        stub.PutDataset(stalled(), timeout=15)
    leave.set()
    assert code_of(caught) is grpc.StatusCode.CANCELLED
    wait_until(lambda: service._transfers._value == served._TRANSFERS)


def test_invalid_messages_do_not_stop_the_service(stub):
    bad = (
        (stub.WorkerHeartbeat, worker("", "")),
        (stub.WorkerHeartbeat, worker(protocol=99)),
        (stub.ConsumerHeartbeat, consumer(7, 2)),
        (stub.RegisterJob, wire.RegisterJobRequest()),
        (stub.GetJob, wire.GetJobRequest()),
    )
    for call, request in bad:
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=5)
        assert code_of(caught) in (
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.NOT_FOUND,
        )
    assert stub.Status(wire.StatusRequest(), timeout=5).dispatcher_id == "d"


def wait_until(holds) -> None:
    """Wait, at most 10 s, until `holds()`."""
    for _ in range(1000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("did not come to hold")
