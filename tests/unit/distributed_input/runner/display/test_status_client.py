"""The client of a dispatcher, with a real server and a fixed response."""

from __future__ import annotations

import os
from collections import namedtuple

import psutil
import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.runner.display.status_client import StatusClient, busy_share, host_cpus
from tests.unit.distributed_input.runner.samples import worker
from tests.unit.distributed_input.runtime.served import Echo, served

LAST = dispatcher_pb2.ConsumerHeartbeatRequest(
    job="train", index=1, incarnation="i", rows=100, batches=10, wait_seconds=1.0, wall_seconds=4.0
)
RESPONSE = dispatcher_pb2.StatusResponse(
    workers=[worker("w"), worker("x")],
    consumers=[dispatcher_pb2.ConsumerInfo(last=LAST)],
    jobs=[types_pb2.Job(name="train", read_amplification=8)],
)


@pytest.fixture
def address():
    with served(Echo(Status=lambda *_: RESPONSE)) as server:
        yield server.address


def test_a_response_becomes_a_sample(address):
    dispatcher = StatusClient(address, Credentials())
    sample = dispatcher.status(timeout=10)
    assert list(sample.consumers) == [LAST]
    assert (sample.workers, sample.jobs, sample.host) == (RESPONSE.workers, RESPONSE.jobs, None)
    dispatcher.close()


def test_the_counts_of_the_trainer_replace_those_of_its_sidecar():
    received = types_pb2.ReceivedTotals(trainer="t", rows=7)
    last = dispatcher_pb2.ConsumerInfo(last=LAST).last
    last.received.CopyFrom(received)
    response = dispatcher_pb2.StatusResponse(consumers=[dispatcher_pb2.ConsumerInfo(last=last)])
    with served(Echo(Status=lambda *_: response)) as server:
        dispatcher = StatusClient(server.address, Credentials())
        (found,) = dispatcher.status(timeout=10).consumers
        dispatcher.close()
    assert (found.rows, found.batches, found.wall_seconds, found.incarnation) == (7, 0, 0, "i")


def test_an_unreachable_dispatcher_is_an_error():
    dispatcher = StatusClient("127.0.0.1:1", Credentials())
    with pytest.raises(UnavailableError, match=r"the dispatcher at 127\.0\.0\.1:1 did not respond"):
        dispatcher.status(timeout=0.5)
    with pytest.raises(UnavailableError, match=r"unavailable|connect"):
        dispatcher.status(timeout=60, wait_for_ready=False)
    dispatcher.close()


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs /proc")
def test_the_cpus_of_this_machine_can_be_read():
    assert 0 <= busy_share(0.1) <= 1
    before = host_cpus()
    assert before is not None
    assert 0 < before.used <= before.total


def test_only_the_cpus_that_this_process_may_use_count(monkeypatch):
    # user to steal, then guest time, which is also user time.
    times = namedtuple("times", "user nice system idle iowait irq softirq steal guest guest_nice")
    first = [times(90, 0, 0, 1, 0, 0, 0, 0, 0, 0), times(0, 0, 0, 0, 5, 0, 0, 40, 7, 7)]
    second = [times(93, 0, 0, 3, 0, 0, 0, 0, 0, 0), times(0, 0, 0, 0, 5, 0, 0, 45, 9, 9)]
    readings = [[*first, times(*[9] * 10)], [*second, times(*[99] * 10)]]
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda _: [0, 1], raising=False)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: readings.pop(0))
    assert busy_share(0) == 0.8


def test_a_machine_without_counters_is_not_busy(monkeypatch):
    monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
    assert busy_share(0) == 0
