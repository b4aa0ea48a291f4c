"""The gRPC service of proto/dispatcher.proto: `DispatcherState` behind one lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2 as wire
from distributed_input.dispatcher import audit, datasets
from distributed_input.dispatcher.clock import RunningClock
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link.statuses import InvalidRequestError
from distributed_input.runtime import logs, metrics

DESCRIPTOR = wire.DESCRIPTOR.services_by_name["Dispatcher"]
THREADS = 96
_TRANSFERS = 64  # at the same time; the other threads serve heartbeats
_TRANSFER_SECONDS = 600.0
_log = logs.get("dispatcher.service")


class DispatcherService:
    """Serves proto/dispatcher.proto. Callers get its exceptions as statuses (see `stubs`)."""

    def __init__(self, state: DispatcherState, clock: RunningClock) -> None:
        self._state = state
        self._clock = clock
        self._lock = threading.Lock()
        self._transfers = threading.BoundedSemaphore(_TRANSFERS)

    # RPCs, with the names in the proto.

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
            _log.warning(
                "facts contradict", job=request.job, index=request.index, conflict=conflict
            )
        if answer.response.fenced:
            _log.warning(
                "consumer fenced",
                job=request.job,
                index=request.index,
                incarnation=request.incarnation,
                by=answer.response.fenced_by,
            )
        return answer.response

    def RegisterJob(  # noqa: N802
        self, request: wire.RegisterJobRequest, context: grpc.ServicerContext
    ) -> wire.RegisterJobResponse:
        with self._lock:
            job = self._state.jobs.register(self._clock.now(), request.job, request.incarnation)
        audit.job_registered(context, job, request.incarnation)
        return wire.RegisterJobResponse(job=job)

    def GetJob(self, request: wire.GetJobRequest, _context: Any) -> wire.GetJobResponse:  # noqa: N802
        with self._lock:
            job = self._state.jobs.get(self._clock.now(), request.name, request.other_than)
        return wire.GetJobResponse(job=job)

    def Status(self, request: wire.StatusRequest, _context: Any) -> wire.StatusResponse:  # noqa: N802
        with self._lock:
            return self._state.status(self._clock.now(), request.max_skipped)

    def PutDataset(  # noqa: N802
        self, chunks: Iterator[wire.DatasetChunk], context: grpc.ServicerContext
    ) -> wire.PutDatasetResponse:
        with self._transfer(context):
            first = next(chunks, None)
            if first is None:
                raise InvalidRequestError(
                    "dataset: the request has no chunk; the first chunk must have the id"
                )
            upload = datasets.DatasetUpload(first.dataset_id)
            if self._has(upload.dataset_id):
                return wire.PutDatasetResponse()  # before the rest is sent
            self._receive(upload, first, chunks)
        audit.dataset_registered(context, upload.dataset_id, upload.size)
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

    # Called by the process.

    def expire(self) -> None:
        """Remove expired entries. Call it every TICK_SECONDS, which keeps the clock running."""
        with self._lock:
            self._state.expire(self._clock.now())

    def samples(self) -> list[metrics.Sample]:
        """Return the metrics."""
        with self._lock:
            return list(self._state.samples(self._clock.now()))

    # Transfers.

    @contextmanager
    def _transfer(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Limit the number and the time of transfers, so that threads remain for heartbeats."""
        if not self._transfers.acquire(blocking=False):
            raise UnavailableError(f"{_TRANSFERS} datasets are being transferred: retry later")
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
        self,
        upload: datasets.DatasetUpload,
        chunk: wire.DatasetChunk,
        rest: Iterator[wire.DatasetChunk],
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
