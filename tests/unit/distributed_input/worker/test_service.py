"""The streams of the worker's service, its metrics and its load."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import grpc
import numpy as np
import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    ProtocolError,
    UnavailableError,
)
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.rows import blocks, frames
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.runtime import metrics, statuses
from distributed_input.runtime.credentials import Credentials
from distributed_input.runtime.serving import make_server, open_channel
from distributed_input.runtime.stubs import Overrides, Stub, identity, service_handler
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.service import WorkerService
from distributed_input.worker.streams.connection import UNLIMITED

ROW = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))
ROWS = 10


class NumberSplits:
    """A fake `SplitOpener`: rows 0 to 9; with `broken`, the last row raises an error."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken

    def open(self, *_: Any) -> SplitIterator:
        return SplitIterator(self._elements(), ROW, False)

    def _elements(self) -> Iterator[Any]:
        for row in range(ROWS):
            if self._broken and row == ROWS - 1:
                raise OSError("the disk is gone")
            yield {"id": np.int64(row)}


class Context:
    """The context of a call, whose caller may disconnect."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def disconnect(self) -> None:
        for callback in self._callbacks:
            callback()


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


def stream_of(
    service: WorkerService, start_row: int = 0, context: Any = None
) -> Generator[bytes, None, None]:
    """Return a stream of a sidecar of an earlier version."""
    context = context or Context()
    stream = service.Stream(request(start_row), context)
    return cast("Generator[bytes, None, None]", stream)


def service_of(splits: Any) -> WorkerService:
    return WorkerService(splits, parallelism=1, max_streams=2, share_bytes=1 << 20)


def request(start_row: int = 0) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(name="train", dataset_id="d", row_spec=ROW.to_json(), partitions=1)
    return worker_pb2.StreamRequest(job=job, start_row=start_row, protocol=PROTOCOL)


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
    sent = [blocks.decode(data) for data in stream_of(service, start_row=4)]
    assert sum(block.rows for block in sent) == ROWS - 4
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
    assert service.load().failure is None
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


def test_more_streams_than_the_maximum_are_refused(waiting: WaitingSplits) -> None:
    service = service_of(waiting)
    streams = [stream_of(service) for _ in range(3)]
    next(streams[0])
    next(streams[1])
    with pytest.raises(UnavailableError, match="2 streams open"):
        next(streams[2])
    streams[0].close()
    assert blocks.decode(next(stream_of(service))).rows


def test_the_worker_is_idle_when_its_last_stream_closes(waiting: WaitingSplits) -> None:
    service = service_of(waiting)
    stream = stream_of(service)
    next(stream)
    assert not service.streams.idle.is_set()
    stream.close()
    assert service.streams.idle.is_set()


def test_a_stream_ends_when_its_sidecar_disconnects(waiting: WaitingSplits) -> None:
    service, context = service_of(waiting), Context()
    stream = stream_of(service, context=context)
    found = blocks.decode(next(stream)).rows
    context.disconnect()
    assert sum(blocks.decode(data).rows for data in stream) + found < ROWS
    assert service.streams.idle.is_set()
    assert not service._connections


@contextmanager
def served(service: WorkerService) -> Iterator[Stub]:
    """Serve a worker as `serve` does. Return a stub whose messages are bytes."""
    descriptor = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
    encoded: Overrides = dict.fromkeys(("Connect", "Stream"), (None, identity))
    handler = service_handler(descriptor, service, encoded)
    server = make_server([handler], "127.0.0.1:0", Credentials())
    server.start()
    try:
        with open_channel(server.address, Credentials(), private=True) as channel:
            yield Stub(channel, descriptor, encoded)
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


def ids_in(found: list[blocks.RowBlock]) -> list[int]:
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


def test_an_error_of_a_split_does_not_end_the_connection() -> None:
    service = service_of(NumberSplits(broken=True))
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with served(service) as stub:
        call = stub.Connect(requests_of(given), timeout=20)
        for number in (1, 2):
            given.put(opening(number, 0, UNLIMITED))
            errors: list[Any] = []
            while not errors:
                errors = [frame.error for frame in frames.decode(next(call)) if frame.error]
            assert errors[0].kind == "DatasetFnError"
            assert "the disk is gone" in errors[0].message
        given.put(None)
        assert not list(call)
    assert failures_of(service) == {("DatasetFnError",): 2}


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


def test_a_sidecar_of_an_earlier_version_gets_one_split_for_each_call() -> None:
    service = service_of(NumberSplits())
    with served(service) as stub:
        found = [blocks.decode(data) for data in stub.Stream(request(start_row=3), timeout=20)]
        assert ids_in(found) == list(range(3, ROWS))
        assert [block.last for block in found] == [False] * (len(found) - 1) + [True]
        assert service.streams.idle.wait(20)


def test_a_sidecar_of_an_earlier_version_gets_the_status_of_an_error() -> None:
    service = service_of(NumberSplits(broken=True))
    with served(service) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.Stream(request(), timeout=20))
        error = statuses.from_rpc_error(caught.value, "reading")
        assert isinstance(error, DatasetFnError)
        assert "the disk is gone" in str(error)
        wrong = request()
        wrong.protocol += 1000
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.Stream(wrong, timeout=20))
        assert isinstance(statuses.from_rpc_error(caught.value, "reading"), ProtocolError)


def test_a_python_iterable_runs_in_a_thread_of_its_own() -> None:
    splits = NamingSplits()
    asked = request()
    asked.job.ClearField("dataset_id")
    asked.job.entry_point.target = "data:rows"
    asked.split = 3
    stream = service_of(splits).Stream(asked, cast("Any", Context()))
    assert sum(blocks.decode(data).rows for data in stream) == ROWS
    assert splits.threads == {"split-3"}
