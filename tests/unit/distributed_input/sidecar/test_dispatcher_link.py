"""The sidecar's link to a dispatcher, which is a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import DistributedInputError, FencedError
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.dispatcher.datasets import DatasetStore
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.dispatcher_link import DispatcherLink
from tests.unit.distributed_input.dispatcher.builders import fact, job
from tests.unit.distributed_input.sidecar.system import System, eventually, running

Make = Callable[..., DispatcherLink]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


@pytest.fixture
def link(system: System) -> Iterator[Make]:
    """Makes started links."""
    made: list[DispatcherLink] = []

    def make(consumer: int = 0, consumers: int = 1) -> DispatcherLink:
        link = DispatcherLink(system.address, Credentials(), consumer, consumers)
        made.append(link)
        link.start()
        eventually(lambda: link.connected)
        return link

    yield make
    for one in made:
        if not one._stop.is_set():
            one.stop()


def soon() -> float:
    """A deadline that is enough where nothing has to be waited for."""
    return time.monotonic() + 2.0


def registered(system: System) -> Job:
    entry = system.state.jobs.entry("train")
    assert entry is not None
    return entry.job


def holders(system: System) -> int:
    entry = system.state.jobs.entry("train")
    return len(entry.consumers.live(system.clock.now())) if entry is not None else 0


def test_who_is_fenced_is_told_by_whom(system: System, link: Make) -> None:
    older = link()
    fenced: list[DistributedInputError] = []
    older.on_fenced = fenced.append
    older.register(job(), b"", soon())
    newer = link()
    newer.register(job(), b"", soon())
    eventually(lambda: fenced)
    assert isinstance(fenced[0], FencedError)
    assert f"consumer 0 of 1 (incarnation {newer.incarnation})" in str(fenced[0])
    assert "give each a consumer index of its own" in str(fenced[0])


def test_its_own_job_is_in_nobodys_way(system: System, link: Make) -> None:
    only = link()
    only.register(job(), b"", soon())
    eventually(lambda: holders(system) == 1)
    only.facts.learn([fact(0, [3])])
    other = job(data=b"other")
    assert only.register(other, b"", soon()) == other
    assert registered(system) == other
    # Lengths of the first job's splits say nothing of the second's.
    assert only.facts.of(0, 0).rows_seen == 0


def test_the_same_job_is_kept_with_what_is_known_of_it(system: System, link: Make) -> None:
    only = link()
    only.register(job(), b"", soon())
    only.facts.learn([fact(0, [3])])
    assert only.register(job(), b"", soon()) == job()
    assert only.facts.of(0, 0).rows_seen == 3


def test_all_consumers_of_a_run_may_bring_another_job(system: System, link: Make) -> None:
    first, second = link(0, 2), link(1, 2)
    first.register(job(), b"", soon())
    assert second.wait_for_job("train", soon()) == job()
    eventually(lambda: holders(system) == 2)
    second._give_up_job()
    other = job(data=b"other")
    assert first.register(other, b"", soon()) == other
    assert second.wait_for_job("train", soon()) == other


def test_a_job_given_up_is_not_registered_again(system: System, link: Make) -> None:
    """The answer to a heartbeat that was under way comes after."""
    only = link()
    only.register(job(), b"", soon())
    held = only._registered
    only._give_up_job()
    system.state.jobs._entries.clear()
    only._register_again(held)
    assert system.state.jobs.entry("train") is None


def test_a_dispatcher_that_comes_back_empty_gets_the_dataset_though_another_brought_the_job(
    system: System, link: Make
) -> None:
    """Workers that come later find it nowhere else."""
    first = link(0, 2)
    traced = job(data=b"traced")
    first.register(traced, b"traced", soon())
    eventually(lambda: holders(system) == 1)
    # Another consumer of the run has registered the job there before this one's next heartbeat.
    system.state.datasets = DatasetStore(1 << 20)
    system.state.dispatcher_id = "its next life"
    eventually(lambda: system.state.datasets.has(traced.dataset_id))


def test_the_next_run_need_not_wait_for_one_that_stopped(system: System, link: Make) -> None:
    before = link()
    before.register(job(), b"", soon())
    eventually(lambda: holders(system) == 1)
    before.stop()
    other = job(data=b"other")
    assert link().register(other, b"", soon()) == other


def test_a_stop_without_a_dispatcher_is_quick_and_quiet(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        link = DispatcherLink(system.address, Credentials(), 0, 1)
        link.start()
        eventually(lambda: link.connected)
        link.register(job(), b"", soon())
    began = time.monotonic()
    link.stop()
    assert time.monotonic() - began < 6.0


def test_the_age_of_the_last_answer_grows_without_a_dispatcher(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        link = DispatcherLink(system.address, Credentials(), 0, 1)
        link.start()
        eventually(lambda: link.connected)
        assert link.heartbeat_age < 5.0
    eventually(lambda: not link.connected)
    age = link.heartbeat_age
    time.sleep(0.1)
    assert link.heartbeat_age >= age + 0.1
    link.stop()
