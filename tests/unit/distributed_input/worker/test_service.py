"""The streams of the worker's service, its metrics and its load."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    ProtocolError,
    UnavailableError,
    from_kind,
)
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.blocks import frames
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import make_server, open_channel
from distributed_input.link.stubs import Stub, service_handler
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.prefix import DIGEST_VERSION
from distributed_input.runtime import metrics
from distributed_input.worker.compute.task_queue import ComputeTask
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.service import WorkerService

ROW = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))
ROWS = 10
UNLIMITED = 1 << 62


class NumberSplits:
    """A fake `SplitOpener`: rows 0 to 9; with `broken`, the last row raises an error."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken

    def keep(self, *_: object) -> None:
        pass

    def open(self, *_: Any, **__: Any) -> SplitIterator:
        return SplitIterator(self._elements(), ROW, False)

    def _elements(self) -> Iterator[Any]:
        for row in range(ROWS):
            if self._broken and row == ROWS - 1:
                raise OSError("the disk is gone")
            yield {"id": np.int64(row)}


class WaitingSplits(NumberSplits):
    """The last row is produced when the test ends."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def _elements(self) -> Iterator[Any]:
        for row, element in enumerate(super()._elements()):
            if row == ROWS - 1:
                self.goes_on.wait(20)
            yield element


class NamingSplits(NumberSplits):
    """Records the names of the threads that compute rows."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def _elements(self) -> Iterator[Any]:
        for element in super()._elements():
            self.threads.add(threading.current_thread().name)
            yield element


@pytest.fixture
def waiting() -> Iterator[WaitingSplits]:
    splits = WaitingSplits()
    yield splits
    splits.goes_on.set()


def stream_of(service: WorkerService, start_row: int = 0) -> Generator[RowBlock, None, None]:
    """Yield the blocks of the only stream of a connection. Raise the error that ends it."""
    return blocks_of(service, request(start_row))


def blocks_of(
    service: WorkerService, asked: worker_pb2.StreamRequest
) -> Generator[RowBlock, None, None]:
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    opened = worker_pb2.OpenStream(stream=1, request=asked, credit=UNLIMITED)
    given.put(worker_pb2.ConnectRequest(open=[opened]))
    connection: Any = service.Connect(iter(given.get, None), None)
    try:
        for frame in itertools.chain.from_iterable(map(frames.decode, connection)):
            if frame.error is not None:
                raise from_kind(frame.error.kind, frame.error.message)
            yield from frame.blocks
            if frame.blocks[-1].last:
                given.put(None)
    finally:
        connection.close()
        given.put(None)


def service_of(splits: Any) -> WorkerService:
    return WorkerService(splits, parallelism=1, max_streams=2, share_bytes=1 << 20)


def request(start_row: int = 0) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(name="train", dataset_id="d", row_spec=ROW.to_json(), partitions=1)
    return worker_pb2.StreamRequest(
        job=job, start_row=start_row, protocol=PROTOCOL, digest_version=DIGEST_VERSION
    )


def counted(service: WorkerService) -> dict[str, float]:
    """Return the samples without labels, by their short names."""
    return {
        sample.definition.name.removeprefix(f"{metrics.PREFIX}worker_"): sample.value
        for sample in service.samples()
        if not sample.labels
    }


def failures_of(service: WorkerService) -> dict[Any, float]:
    """Return the counts of failures by the labels of their samples."""
    failures = (s for s in service.samples() if s.definition is metrics.WORKER_FAILURES)
    return {sample.labels: sample.value for sample in failures}


def test_rows_and_replays_are_counted() -> None:
    service = service_of(NumberSplits())
    assert counted(service)["rows_total"] == 0
    assert sum(block.rows for block in stream_of(service, start_row=4)) == ROWS - 4
    found = counted(service)
    assert found["rows_total"] == ROWS - 4
    assert found["bytes_total"] == 8 * (ROWS - 4)
    assert found["replayed_rows_total"] == 4
    assert found["busy_seconds_total"] > 0
    assert found["open_streams"] == 0
    assert found["draining"] == 0


def test_an_open_stream_is_counted(waiting: WaitingSplits) -> None:
    service = service_of(waiting)
    stream = stream_of(service, start_row=4)
    next(stream)
    found = counted(service)
    assert found["open_streams"] == 1
    assert found["replayed_rows_total"] == 4
    stream.close()
    assert counted(service)["open_streams"] == 0


def test_failures_are_counted_by_error_class() -> None:
    service = service_of(NumberSplits(broken=True))
    for _ in range(2):
        with pytest.raises(DatasetFnError, match="the disk is gone"):
            list(stream_of(service))
    assert failures_of(service) == {("DatasetFnError",): 2}


def test_the_load_has_the_last_error_of_a_dataset() -> None:
    service = service_of(NumberSplits(broken=True))
    assert not service.load().HasField("failure")
    with pytest.raises(DatasetFnError):
        list(stream_of(service))
    failure = service.load().failure
    assert failure is not None
    assert failure.message.startswith("the dataset failed: OSError: the disk is gone (")


def test_the_load_has_an_error_of_a_description() -> None:
    service = service_of(NumberSplits())
    job = types_pb2.Job(entry_point=types_pb2.EntryPoint(target="no_such_module:rows"))
    with pytest.raises(ConfigError):
        service.Describe(worker_pb2.DescribeRequest(job=job), None)
    failure = service.load().failure
    assert failure is not None
    assert failure.dataset == "no_such_module:rows"


def test_a_closed_stream_and_a_leaving_worker_are_not_failures(waiting: WaitingSplits) -> None:
    service = service_of(waiting)
    stream = stream_of(service)
    next(stream)
    stream.close()
    left = stream_of(service)
    next(left)
    service.hand_back()
    with pytest.raises(UnavailableError, match="leaving"):
        list(left)
    assert failures_of(service) == {}


def test_a_draining_worker_reports_it() -> None:
    service = service_of(NumberSplits())
    service.streams.draining.set()
    assert counted(service)["draining"] == 1
    assert service.load().draining


def test_the_load_has_the_rows_of_closed_streams() -> None:
    service = service_of(NumberSplits())
    list(stream_of(service))
    load = service.load()
    assert load.cpu_seconds > 0
    assert (load.rows, load.open_streams, load.draining) == (ROWS, 0, False)
    assert load.busy_seconds > 0


def test_the_worker_is_idle_when_its_last_stream_closes(waiting: WaitingSplits) -> None:
    service = service_of(waiting)
    stream = stream_of(service)
    next(stream)
    assert not service.streams.idle.is_set()
    stream.close()
    assert service.streams.idle.is_set()


@contextmanager
def served(service: WorkerService) -> Iterator[Stub]:
    """Serve a worker as `serve` does. Return a stub whose messages are bytes."""
    descriptor = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
    handler = service_handler(descriptor, service)
    server = make_server([handler], "127.0.0.1:0", Credentials())
    server.start()
    try:
        with open_channel(server.address, Credentials(), private=True) as channel:
            yield Stub(channel, descriptor)
    finally:
        server.stop(0)


def requests_of(
    given: queue.SimpleQueue[worker_pb2.ConnectRequest | None],
) -> Iterator[worker_pb2.ConnectRequest]:
    return iter(given.get, None)


def opening(number: int, start_row: int, credit: int) -> worker_pb2.ConnectRequest:
    stream = worker_pb2.OpenStream(stream=number, request=request(start_row), credit=credit)
    return worker_pb2.ConnectRequest(open=[stream])


def test_one_call_carries_several_streams() -> None:
    service = service_of(NumberSplits())
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with served(service) as stub:
        call = stub.Connect(requests_of(given), timeout=20)
        given.put(opening(3, 0, 1))
        found = [frame for data in [next(call)] for frame in frames.decode(data)]
        assert [(frame.stream, frame.blocks[0].rows) for frame in found] == [(3, 1)]
        credit = worker_pb2.StreamCredit(stream=3, credit=UNLIMITED)
        opened = opening(5, 4, UNLIMITED)
        given.put(worker_pb2.ConnectRequest(open=opened.open, credits=[credit]))
        ended: set[int] = set()
        while ended != {3, 5}:
            found += frames.decode(next(call))
            ended = {frame.stream for frame in found if frame.blocks[-1].last}
        given.put(None)
        assert not list(call)
    for number, start in ((3, 0), (5, 4)):
        of_stream = [block for frame in found if frame.stream == number for block in frame.blocks]
        assert ids_in(of_stream) == list(range(start, ROWS))
    assert counted(service)["rows_total"] == 2 * ROWS - 4
    assert service.streams.idle.wait(20)


def ids_in(found: list[RowBlock]) -> list[int]:
    return [int(row) for block in found for row in block.buffers[0].view(np.int64)]


def test_the_streams_of_a_connection_close_when_the_sidecar_cancels_it(
    waiting: WaitingSplits,
) -> None:
    service = service_of(waiting)
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with served(service) as stub:
        call = stub.Connect(requests_of(given), timeout=20)
        given.put(opening(1, 0, UNLIMITED))
        next(call)
        assert service.streams.count == 1
        call.cancel()
        assert service.streams.idle.wait(20)
        given.put(None)
    assert not service._connections


def test_only_splits_that_compute_rows_need_cpus(waiting: WaitingSplits) -> None:
    """Others may have full windows, or share the rows of a split with another job."""
    service, end = service_of(waiting), threading.Event()
    for _ in range(2):
        service.streams.enter()
    assert not service._is_crowded()

    def wait() -> list[ComputeTask]:
        assert end.wait(20)
        return []

    service._pool.submit(ComputeTask(wait) for _ in range(2))
    assert service._is_crowded()
    end.set()


def test_a_worker_that_leaves_ends_the_streams_of_a_connection(waiting: WaitingSplits) -> None:
    service = service_of(waiting)
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with served(service) as stub:
        call = stub.Connect(requests_of(given), timeout=20)
        given.put(opening(1, 0, UNLIMITED))
        next(call)
        service.streams.draining.set()
        service.hand_back()
        found = [frame for frame in frames.decode(next(call)) if frame.error is not None]
        while not found:
            found = [frame for frame in frames.decode(next(call)) if frame.error is not None]
        given.put(opening(2, 0, UNLIMITED))
        found += frames.decode(next(call))
        given.put(None)
        assert not list(call)
    errors = [(frame.stream, frame.error.kind) for frame in found if frame.error is not None]
    assert errors == [(1, "UnavailableError"), (2, "UnavailableError")]


def test_a_python_iterable_runs_in_a_thread_of_its_own() -> None:
    splits = NamingSplits()
    asked = request()
    asked.job.ClearField("dataset_id")
    asked.job.entry_point.target = "data:rows"
    asked.split = 3
    stream = blocks_of(service_of(splits), asked)
    assert sum(block.rows for block in stream) == ROWS
    assert splits.threads == {"split-3"}


@pytest.mark.parametrize("name", ["protocol", "digest_version"])
def test_a_sidecar_of_another_version_gets_an_error_with_both_versions(name: str) -> None:
    asked = request()
    own = getattr(asked, name)
    setattr(asked, name, own + 1000)
    with pytest.raises(ProtocolError, match=rf"\b{own + 1000}\b.*\b{own}\b"):
        list(blocks_of(service_of(NumberSplits()), asked))
