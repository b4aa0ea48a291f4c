"""Asks the dispatchers how their inputs go."""

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
from distributed_input_operator.kube.store import InputKey

_METHOD = "/distributed_input.v1.Dispatcher/Status"
TIMEOUT_SECONDS = 2.0
_YOUNG_SECONDS = 4.0
"""Less than that between two questions tells nothing new: the others report every few seconds."""
_AGAIN_SECONDS, _LONGEST_SECONDS = 30.0, 300.0
"""A dispatcher that did not answer is left alone for so long, and each time twice as long: for who
asks it waits meanwhile, and does nothing else."""


@dataclass
class _Known:
    uid: str
    window: RateWindow = field(default_factory=RateWindow)
    address: str = ""
    silent_until: float = 0.0
    silences: int = 0
    """Questions in a row that this address did not answer."""


class Dispatchers:
    """What the dispatchers of all inputs said of late. Measurements, no progress: may be lost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[InputKey, _Known] = {}

    async def ask(self, key: InputKey, uid: str, address: str, token: str) -> Measurement | None:
        """How an input goes; None where its dispatcher at `address` does not say."""
        known, now = self._known.get(key), self._clock()
        if known is None or known.uid != uid:  # another input of the same name
            known = self._known[key] = _Known(uid)
        if known.address != address:  # another pod
            known.address, known.silent_until, known.silences = address, now, 0
        if known.window.samples and now - known.window.samples[-1].time < _YOUNG_SECONDS:
            return known.window.measurement
        if now < known.silent_until:
            return None
        try:
            answer = await _status(address, token)
        except grpc.aio.AioRpcError:
            known.silent_until = now + min(_AGAIN_SECONDS * 2**known.silences, _LONGEST_SECONDS)
            known.silences = min(known.silences + 1, 10)
            known.window = RateWindow()
            return None
        known.silences = 0
        known.window = known.window.add(_sample(answer, now))
        return known.window.measurement

    def forget(self, key: InputKey) -> None:
        """The input is gone."""
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
        answer: dispatcher_pb2.StatusResponse = await call(
            dispatcher_pb2.StatusRequest(),
            timeout=TIMEOUT_SECONDS,
            metadata=(("authorization", f"Bearer {token}"),),
        )
        return answer


def _sample(answer: dispatcher_pb2.StatusResponse, now: float) -> DispatcherSample:
    consumers = {}
    for info in answer.consumers:
        one = info.last
        consumers[f"{one.job}/{one.index}/{one.incarnation}"] = ConsumerCounters(
            rows=one.rows,
            wait=one.wait_seconds,
            wall=one.wall_seconds,
            epoch=one.epoch,
            useful_workers=one.useful_workers,
            finished=one.finished,
            batches=one.batches,
        )
    workers = {
        one.worker_id: WorkerCounters(one.address, one.rows, one.busy_seconds, one.open_streams)
        for one in answer.workers
    }
    return DispatcherSample(now, consumers, workers)
