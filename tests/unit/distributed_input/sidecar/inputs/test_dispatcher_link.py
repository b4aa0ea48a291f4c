from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distributed_input.api.errors import DistributedInputError, FencedError
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.dispatcher.datasets import DatasetStore
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.inputs.consumer_stats import ConsumerStats
from distributed_input.sidecar.inputs.dispatcher_link import DispatcherLink
from tests.unit.distributed_input.dispatcher.builders import fact, job
from tests.unit.distributed_input.sidecar.system import System, eventually, running


class FakeConsumer:
    """A consumer without statistics or facts. `refusals` are the errors it was given."""

    def __init__(self) -> None:
        self.refusals: list[DistributedInputError] = []

    def stats(self) -> ConsumerStats:
        return ConsumerStats()

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        return []

    def refuse(self, error: DistributedInputError) -> None:
        self.refusals.append(error)


Start = Callable[..., DispatcherLink]


def create(address: str, index: int = 0, count: int = 1) -> DispatcherLink:
    return DispatcherLink(address, Credentials(), index, count, FakeConsumer())


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


@pytest.fixture
def start(system: System) -> Iterator[Start]:
    """A function that starts a link and waits until it is connected."""
    links: list[DispatcherLink] = []

    def start(index: int = 0, count: int = 1) -> DispatcherLink:
        link = create(system.address, index, count)
        links.append(link)
        link.start()
        eventually(lambda: link.connected)
        return link

    yield start
    for link in links:
        if not link._stopping.is_set():
            link.stop()


def soon() -> float:
    """Return a deadline that suffices if nothing has to be waited for."""
    return time.monotonic() + 2.0


def registered(system: System) -> Job:
    entry = system.state.jobs.entry("train")
    assert entry is not None
    return entry.job


def holders(system: System) -> int:
    """Return the number of consumers of the job that the dispatcher counts as present."""
    entry = system.state.jobs.entry("train")
    return len(entry.consumers.live(system.clock.now())) if entry is not None else 0


def test_the_error_of_a_fenced_consumer_names_the_newer_one(system: System, start: Start) -> None:
    older = start()
    older.register(job(), b"", soon())
    newer = start()
    newer.register(job(), b"", soon())
    consumer = older._consumer
    assert isinstance(consumer, FakeConsumer)
    eventually(lambda: consumer.refusals)
    assert isinstance(consumer.refusals[0], FencedError)
    assert f"consumer 0 of 1 (incarnation {newer.incarnation})" in str(consumer.refusals[0])
    assert "set different consumer indices" in str(consumer.refusals[0])


def test_the_only_consumer_may_replace_its_job(system: System, start: Start) -> None:
    only = start()
    only.register(job(), b"", soon())
    eventually(lambda: holders(system) == 1)
    only.partition_facts.merge([fact(0, [3])])
    other = job(data=b"other")
    assert only.register(other, b"", soon()) == other
    assert registered(system) == other
    # The lengths of the first job's splits are not those of the second job's.
    assert only.partition_facts.of(0, 0).rows_seen == 0


def test_a_job_registered_again_keeps_its_facts(system: System, start: Start) -> None:
    only = start()
    only.register(job(), b"", soon())
    only.partition_facts.merge([fact(0, [3])])
    assert only.register(job(), b"", soon()) == job()
    assert only.partition_facts.of(0, 0).rows_seen == 3


def test_all_consumers_together_may_replace_their_job(system: System, start: Start) -> None:
    first, second = start(0, 2), start(1, 2)
    first.register(job(), b"", soon())
    assert second.wait_for_job("train", soon()) == job()
    eventually(lambda: holders(system) == 2)
    second._release_job()
    other = job(data=b"other")
    assert first.register(other, b"", soon()) == other
    assert second.wait_for_job("train", soon()) == other


def test_a_released_job_is_not_registered_again(system: System, start: Start) -> None:
    """The answer to an earlier heartbeat arrives after the release."""
    only = start()
    only.register(job(), b"", soon())
    before = only._registered
    only._release_job()
    system.state.jobs._entries.clear()
    only._register_again(before)
    assert system.state.jobs.entry("train") is None


def test_a_restarted_dispatcher_gets_the_dataset_even_if_it_has_the_job(
    system: System, start: Start
) -> None:
    """Workers that start later can get the dataset from the dispatcher only."""
    first = start(0, 2)
    traced = job(data=b"traced")
    first.register(traced, b"traced", soon())
    eventually(lambda: holders(system) == 1)
    # Another consumer has registered the job there before this one's next heartbeat.
    system.state.datasets = DatasetStore(1 << 20)
    system.state.dispatcher_id = "restarted"
    eventually(lambda: system.state.datasets.has(traced.dataset_id))


def test_the_next_run_need_not_wait_for_one_that_has_stopped(system: System, start: Start) -> None:
    before = start()
    before.register(job(), b"", soon())
    eventually(lambda: holders(system) == 1)
    before.stop()
    other = job(data=b"other")
    assert start().register(other, b"", soon()) == other


def test_a_link_stops_quickly_without_a_dispatcher(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        link = create(system.address)
        link.start()
        eventually(lambda: link.connected)
        link.register(job(), b"", soon())
    began = time.monotonic()
    link.stop()
    assert time.monotonic() - began < 6.0


def test_the_heartbeat_age_grows_without_a_dispatcher(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        link = create(system.address)
        link.start()
        eventually(lambda: link.connected)
        assert link.heartbeat_age < 5.0
    eventually(lambda: not link.connected)
    age = link.heartbeat_age
    eventually(lambda: link.heartbeat_age >= age + 0.1)
    link.stop()


def test_a_link_that_two_threads_stop_reports_its_end_once(system: System, start: Start) -> None:
    link = start()
    link.register(job(), b"", soon())
    eventually(lambda: holders(system))
    with ThreadPoolExecutor(2) as pool:
        for stopped in [pool.submit(link.stop) for _ in range(2)]:
            stopped.result(10)
    entry = system.state.jobs.entry("train")
    assert entry is not None
    assert entry.consumers.over
