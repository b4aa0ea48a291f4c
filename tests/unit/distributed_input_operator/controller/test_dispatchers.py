"""Requests to a silent dispatcher back off; its replacement is asked at once."""

from __future__ import annotations

import asyncio

from distributed_input.api.proto.dispatcher_pb2 import (
    ConsumerHeartbeatRequest,
    ConsumerInfo,
    StatusResponse,
    WorkerInfo,
)
from distributed_input.api.proto.types_pb2 import Job, StalledSplit
from distributed_input_operator.autoscaling.rates import measure
from distributed_input_operator.controller import dispatchers
from distributed_input_operator.controller.dispatchers import DispatcherClient

KEY = ("team", "digits")


class SilentServer:
    """A server that closes each connection, and counts them."""

    def __init__(self) -> None:
        self.calls = 0

    async def close(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        writer.close()
        await writer.wait_closed()


def times_of_calls(until: float, moves_at: float = 9e9) -> list[float]:
    """Return the times of requests to a silent dispatcher, with a reconciliation every 10 s.

    At `moves_at` it gets another port.
    """

    async def story() -> list[float]:
        now, times, server = 0.0, [], SilentServer()
        client = DispatcherClient(lambda: now)
        first = await asyncio.start_server(server.close, "127.0.0.1", 0)
        second = await asyncio.start_server(server.close, "127.0.0.1", 0)
        async with first, second:
            while now <= until:
                host, port = (second if now >= moves_at else first).sockets[0].getsockname()
                before = server.calls
                assert await client.measure(KEY, "u-1", f"{host}:{port}", "token") is None
                times += [now] * (server.calls > before)
                now += 10
        return times

    return asyncio.run(story())


def test_requests_to_a_silent_dispatcher_back_off():
    assert times_of_calls(until=1060) == [0, 30, 90, 210, 450, 750, 1050]


def test_a_replacement_pod_is_asked_at_once():
    assert times_of_calls(until=150, moves_at=110) == [0, 30, 90, 110, 140]


def test_the_split_that_stalls_for_the_longest_time_is_measured():
    def stalled(split: int, seconds: float) -> StalledSplit:
        return StalledSplit(dataset="data:rows", split=split, seconds=seconds)

    workers = [
        WorkerInfo(worker_id="a", address="h:1", stalled=[stalled(3, 20), stalled(4, 12)]),
        WorkerInfo(worker_id="b", address="h:2", stalled=[stalled(5, 40)]),
        WorkerInfo(worker_id="c", address="h:3"),
    ]
    sample = dispatchers.sample_of(StatusResponse(workers=workers), 0.0)
    assert measure(None, sample).stalled == "split 5 of dataset data:rows, worker h:2"


def test_the_pods_of_workers_and_consumers_are_measured():
    beat = ConsumerHeartbeatRequest(job="train", pod="p")
    workers = [
        WorkerInfo(worker_id="own", address="127.0.0.1:1", pod="p", permit_seconds=2.5),
        WorkerInfo(worker_id="w", address="h:1"),
    ]
    response = StatusResponse(workers=workers, consumers=[ConsumerInfo(last=beat)])
    sample = dispatchers.sample_of(response, 0.0)
    assert [one.pod for one in sample.consumers.values()] == ["p"]
    own = sample.workers["own"]
    # An address within a pod is of no use to people.
    assert (own.pod, own.permits, own.address) == ("p", 2.5, "own")
    assert (sample.workers["w"].pod, sample.workers["w"].address) == ("", "h:1")


def test_the_largest_read_amplification_of_the_jobs_is_measured():
    jobs = [Job(read_amplification=4), Job(read_amplification=8), Job()]
    assert measure(None, dispatchers.sample_of(StatusResponse(jobs=jobs), 0.0)).amplification == 8
    assert measure(None, dispatchers.sample_of(StatusResponse(), 0.0)).amplification == 0
