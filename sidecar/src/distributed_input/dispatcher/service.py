"""proto/dispatcher.proto on the wire: `DispatcherState` behind one lock, datasets in chunks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2 as wire
from distributed_input.dispatcher import datasets
from distributed_input.dispatcher.clock import RunningClock
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.runtime import logs, metrics
from distributed_input.runtime.statuses import InvalidRequestError

DESCRIPTOR = wire.DESCRIPTOR.services_by_name["Dispatcher"]
THREADS = 96
_TRANSFERS = 64  # at once; the other threads are for heartbeats
_TRANSFER_SECONDS = 600.0
_log = logs.get("dispatcher.service")


class DispatcherService:
    """Serves proto/dispatcher.proto. What it raises reaches the caller (see `stubs`)."""

    def __init__(self, state: DispatcherState, clock: RunningClock) -> None:
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        self._transfers = threading.BoundedSemaphore(_TRANSFERS)

    # RPCs: the names are the proto's.

    def WorkerHeartbeat(  # noqa: N802
        self, request: wire.WorkerHeartbeatRequest, _context: Any
    ) -> wire.WorkerHeartbeatResponse:
        with self._lock:
            return self._state.worker_beat(self._clock.now(), request)

    def ConsumerHeartbeat(  # noqa: N802
        self, request: wire.ConsumerHeartbeatRequest, _context: Any
    ) -> wire.ConsumerHeartbeatResponse:
        with self._lock:
            answer = self._state.consumer_beat(self._clock.now(), request)
        for conflict in answer.conflicts:
            _log.warning("facts contradict", job=request.job, index=request.index, what=conflict)
        if answer.response.fenced:
            _log.warning(
                "consumer fenced off",
                job=request.job,
                index=request.index,
                incarnation=request.incarnation,
                by=answer.response.fenced_by,
            )
        return answer.response

    def RegisterJob(  # noqa: N802
        self, request: wire.RegisterJobRequest, _context: Any
    ) -> wire.RegisterJobResponse:
        with self._lock:
            job = self._state.jobs.register(self._clock.now(), request.job)
        _log.info("job registered", job=job.name, dataset=job.dataset_id)
        return wire.RegisterJobResponse(job=job)

    def GetJob(self, request: wire.GetJobRequest, _context: Any) -> wire.GetJobResponse:  # noqa: N802
        with self._lock:
            return wire.GetJobResponse(job=self._state.jobs.get(self._clock.now(), request.name))

    def Status(self, _request: wire.StatusRequest, _context: Any) -> wire.StatusResponse:  # noqa: N802
        with self._lock:
            return self._state.status(self._clock.now())

    def PutDataset(  # noqa: N802
        self, chunks: Iterator[wire.DatasetChunk], context: grpc.ServicerContext
    ) -> wire.PutDatasetResponse:
        with self._transfer(context):
            first = next(chunks, None)
            if first is None:
                raise InvalidRequestError("a dataset has at least one chunk, which names its id")
            upload = datasets.DatasetUpload(first.dataset_id)
            if self._has(upload.dataset_id):
                return wire.PutDatasetResponse()  # before the rest is sent
            self._receive(upload, first, chunks)
        _log.info("dataset registered", dataset=upload.dataset_id, size=upload.size)
        return wire.PutDatasetResponse()

    def GetDataset(  # noqa: N802
        self, request: wire.GetDatasetRequest, context: grpc.ServicerContext
    ) -> Iterator[wire.DatasetChunk]:
        datasets.check_id(request.dataset_id)
        with self._transfer(context):
            with self._lock:
                pieces = self._state.datasets.get(request.dataset_id)
            for number, piece in enumerate(pieces):
                name = "" if number else request.dataset_id
                yield wire.DatasetChunk(dataset_id=name, data=piece)

    # For the process.

    def expire(self) -> None:
        """Drop what is over, and keep the clock going: to be called every TICK_SECONDS."""
        with self._lock:
            self._state.expire(self._clock.now())

    def samples(self) -> list[metrics.Sample]:
        """The metrics."""
        with self._lock:
            return list(self._state.samples(self._clock.now()))

    # Transfers.

    @contextmanager
    def _transfer(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Few enough at once to leave threads for heartbeats, and none for ever."""
        if not self._transfers.acquire(blocking=False):
            raise UnavailableError(f"{_TRANSFERS} datasets are being transferred: try again")
        timer = threading.Timer(_TRANSFER_SECONDS, context.cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._transfers.release()

    def _has(self, dataset_id: str) -> bool:
        with self._lock:
            return self._state.datasets.has(dataset_id)

    def _receive(
        self, upload: datasets.DatasetUpload, chunk: wire.DatasetChunk, rest: Iterator[wire.DatasetChunk]
    ) -> None:
        reserved = 0
        try:
            while True:
                self._reserve(len(chunk.data))
                reserved += len(chunk.data)
                upload.add(chunk.data)
                following = next(rest, None)
                if following is None:
                    break
                chunk = following
            pieces = upload.finish()
            with self._lock:
                self._state.datasets.add(upload.dataset_id, pieces)
                reserved = 0
        finally:
            if reserved:
                with self._lock:
                    self._state.datasets.unreserve(reserved)

    def _reserve(self, size: int) -> None:
        with self._lock:
            state = self._state
            state.datasets.reserve(size, state.datasets_in_use(self._clock.now()))
