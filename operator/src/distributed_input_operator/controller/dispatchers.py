"""Measure inputs by the status of their dispatchers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from distributed_input.api.proto import dispatcher_pb2
from distributed_input_operator.autoscaling.rates import (
    ConsumerCounters,
    DispatcherSample,
    Measurement,
    RateWindow,
    WorkerCounters,
)
from distributed_input_operator.budget.claim import InputKey

_METHOD = "/distributed_input.v1.Dispatcher/Status"
TIMEOUT_SECONDS = 2.0
_MIN_SAMPLE_SECONDS = 4.0
"""Minimum time between two samples. Sidecars and workers report only every few seconds."""
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 30.0, 300.0
"""Time without requests to a dispatcher that did not respond. It doubles with each failure, because
a reconciliation waits for the response."""


@dataclass
class _DispatcherState:
    """What is known of one input's dispatcher."""

    uid: str
    window: RateWindow = field(default_factory=RateWindow)
    address: str = ""
    retry_at: float = 0.0
    failures: int = 0
    """Consecutive requests to which this address did not respond."""


class DispatcherClient:
    """Requests the status of dispatchers, and keeps recent measurements.

    The measurements can be lost: they describe rates, not progress.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[InputKey, _DispatcherState] = {}

    async def measure(
        self, key: InputKey, uid: str, address: str, token: str
    ) -> Measurement | None:
        """Return the measurement of an input. None: its dispatcher does not respond."""
        known, now = self._known.get(key), self._clock()
        if known is None or known.uid != uid:  # Another input of the same name.
            known = self._known[key] = _DispatcherState(uid)
        if known.address != address:  # Another pod.
            known.address, known.retry_at, known.failures = address, now, 0
        if known.window.samples and now - known.window.samples[-1].time < _MIN_SAMPLE_SECONDS:
            return known.window.measurement
        if now < known.retry_at:
            return None
        try:
            response = await _status(address, token)
        except grpc.aio.AioRpcError:
            known.retry_at = now + min(
                _MIN_BACKOFF_SECONDS * 2**known.failures, _MAX_BACKOFF_SECONDS
            )
            known.failures = min(known.failures + 1, 10)
            known.window = RateWindow()
            return None
        known.failures = 0
        known.window = known.window.add(sample_of(response, now))
        return known.window.measurement

    def forget(self, key: InputKey) -> None:
        """Drop the measurements of a deleted input."""
        self._known.pop(key, None)

    def __len__(self) -> int:
        return len(self._known)


async def _status(address: str, token: str) -> dispatcher_pb2.StatusResponse:
    options = [("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call = channel.unary_unary(
            _METHOD,
            request_serializer=dispatcher_pb2.StatusRequest.SerializeToString,
            response_deserializer=dispatcher_pb2.StatusResponse.FromString,
        )
        response: dispatcher_pb2.StatusResponse = await call(
            dispatcher_pb2.StatusRequest(),
            timeout=TIMEOUT_SECONDS,
            metadata=(("authorization", f"Bearer {token}"),),
        )
        return response


def sample_of(response: dispatcher_pb2.StatusResponse, now: float) -> DispatcherSample:
    """Return the counters in a dispatcher's status, with the time at which it was received."""
    consumers = {}
    for info in response.consumers:
        one = info.last
        consumers[f"{one.job}/{one.index}/{one.incarnation}"] = ConsumerCounters(
            rows=one.rows,
            wait=one.wait_seconds,
            wall=one.wall_seconds,
            epoch=one.epoch,
            useful_workers=one.useful_workers,
            useful_limit=one.useful_limit,
            finished=one.finished,
            batches=one.batches,
            mismatches=one.replay_mismatches,
            pod=one.pod,
        )
    workers = {one.worker_id: _worker(one) for one in response.workers}
    amplification = max((job.read_amplification for job in response.jobs), default=0)
    return DispatcherSample(now, consumers, workers, amplification)


def _worker(one: dispatcher_pb2.WorkerInfo) -> WorkerCounters:
    longest = max(one.stalled, key=lambda split: split.seconds, default=None)
    return WorkerCounters(
        address=one.worker_id if one.pod else one.address,
        rows=one.rows,
        busy=one.busy_seconds,
        streams=one.open_streams,
        stalled=f"split {longest.split} of dataset {longest.dataset}" if longest else "",
        stalled_seconds=longest.seconds if longest else 0.0,
        pod=one.pod,
        permits=one.permit_seconds,
    )
