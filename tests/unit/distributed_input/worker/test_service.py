"""The metrics and the load of the worker's service."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, cast

import numpy as np
import pytest

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.rows import blocks
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.runtime import metrics
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.service import WorkerService

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


def stream_of(service: WorkerService, start_row: int = 0) -> Generator[bytes, None, None]:
    """Return a stream. gRPC closes it if the sidecar disconnects."""
    return cast("Generator[bytes, None, None]", service.Stream(request(start_row), None))


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
    sent = [blocks.decode(data) for data in service.Stream(request(start_row=4), None)]
    assert sum(block.rows for block in sent) == ROWS - 4
    found = counted(service)
    assert found["rows_total"] == ROWS - 4
    assert found["bytes_total"] == 8 * (ROWS - 4)
    assert found["replayed_rows_total"] == 4
    assert found["busy_seconds_total"] > 0
    assert found["open_streams"] == 0
    assert found["draining"] == 0


def test_an_open_stream_is_counted() -> None:
    service = service_of(NumberSplits())
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
            list(service.Stream(request(), None))
    assert failures_of(service) == {("DatasetFnError",): 2}


def test_a_closed_stream_and_a_leaving_worker_are_not_failures() -> None:
    service = service_of(NumberSplits())
    stream = stream_of(service)
    next(stream)
    stream.close()
    service.handing_back.set()
    with pytest.raises(Exception, match="leaving"):
        list(service.Stream(request(), None))
    assert failures_of(service) == {}


def test_a_draining_worker_reports_it() -> None:
    service = service_of(NumberSplits())
    service.draining.set()
    assert counted(service)["draining"] == 1
    assert service.load().draining


def test_the_load_has_the_rows_of_closed_streams() -> None:
    service = service_of(NumberSplits())
    list(service.Stream(request(), None))
    load = service.load()
    assert (load.rows, load.open_streams, load.draining) == (ROWS, 0, False)
    assert load.busy_seconds > 0


def test_more_streams_than_the_maximum_are_refused() -> None:
    service = service_of(NumberSplits())
    streams = [stream_of(service) for _ in range(3)]
    next(streams[0])
    next(streams[1])
    with pytest.raises(UnavailableError, match="2 streams open"):
        next(streams[2])
    streams[0].close()
    assert blocks.decode(next(stream_of(service))).rows


def test_the_worker_is_idle_when_its_last_stream_closes() -> None:
    service = service_of(NumberSplits())
    stream = stream_of(service)
    next(stream)
    assert not service.idle.is_set()
    stream.close()
    assert service.idle.is_set()
