"""The workers of a sidecar: which one gets a stream, and when their links are replaced.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import worker_pb2
from distributed_input.api.proto.dispatcher_pb2 import WorkerInfo
from distributed_input.api.proto.types_pb2 import EntryPoint, Job, StalledSplit
from distributed_input.api.stalls import KILLED, STEPS
from distributed_input.link.blocks import direct_reader
from distributed_input.link.blocks.direct_reader import DirectTransfer
from distributed_input.link.credentials import Credentials
from distributed_input.link.errors import Cancelled
from distributed_input.sidecar.streams import worker_pool
from distributed_input.sidecar.streams.local_share import LocalShare, WorkerCounters
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.stream_context import StreamContext
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.streams.streaming import (
    ROWS,
    context,
    info,
    open_split,
    open_stream,
    serve,
    take_all,
)
from tests.unit.distributed_input.sidecar.system import Worker, eventually

KEYS = ((1, 2, 3, 4),)
SECONDS = 10.0


def worker(name: str, draining: bool = False, pod: str = "", cpus: int = 0) -> WorkerInfo:
    return WorkerInfo(
        worker_id=name, address="127.0.0.1:9", draining=draining, pod=pod, parallelism=cpus
    )


def acquire(pool: WorkerPool, key: int = 1) -> str | None:
    """Acquire the worker of a split. Return its id."""
    chosen = pool.acquire(KEYS, key)
    return chosen[0] if chosen is not None else None


def test_a_pool_without_workers_has_none(pool: WorkerPool) -> None:
    assert acquire(pool) is None
    assert pool.any_stub() is None
    assert pool.is_draining("unknown")


def test_splits_that_are_read_together_are_spread_over_workers(pool: WorkerPool) -> None:
    pool.update([worker("a"), worker("b")])
    assert sorted(str(acquire(pool, key)) for key in KEYS[0]) == ["a", "a", "b", "b"]
    assert pool.open_streams == 4


def test_a_draining_worker_gets_no_new_stream(pool: WorkerPool) -> None:
    pool.update([worker("a", draining=True), worker("b")])
    assert {acquire(pool, key) for key in KEYS[0]} == {"b"}
    assert pool.is_draining("a")


def test_the_capacity_is_that_of_the_workers_that_take_streams(pool: WorkerPool) -> None:
    old = worker("old")  # of a version that does not report its capacity
    new, leaving = worker("new"), worker("leaving", draining=True)
    new.capacity = leaving.capacity = 4
    pool.update([old, new, leaving])
    assert (pool.size, pool.capacity) == (2, 5)
    pool.update([new])
    assert (pool.size, pool.capacity) == (1, 4)


def test_the_room_is_that_of_the_workers_that_take_streams(pool: WorkerPool) -> None:
    small, large, leaving = worker("small"), worker("large"), worker("leaving", draining=True)
    small.buffer_bytes, large.buffer_bytes = 150, 310
    pool.update([small, large, leaving])
    assert [pool.room(size) for size in (0, 100, 200, 400)] == [None, 4, 1, 0]
    pool.add([worker("old")])  # of a version that does not report its memory
    assert pool.room(100) is None


def test_a_worker_that_failed_is_used_only_if_no_other_is_left(pool: WorkerPool) -> None:
    pool.update([worker("a"), worker("b")])
    failed = acquire(pool)
    assert failed is not None
    pool.release(failed, failed=True)
    other = {"a": "b", "b": "a"}[failed]
    assert {acquire(pool, key) for key in KEYS[0]} == {other}
    pool.update([worker(failed)])
    assert {acquire(pool, key) for key in KEYS[0]} == {failed}


def test_a_worker_that_failed_is_used_again_after_a_while(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "_RETRY_SECONDS", -1.0)
    pool.update([worker("a"), worker("b")])
    before = [str(acquire(pool, key)) for key in KEYS[0]]
    pool.release(before[0], failed=True)
    assert [acquire(pool, key) for key in KEYS[0]] == before


def test_the_host_of_a_silent_worker_is_asked_once_at_a_time(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answers(address: str) -> bool:
        asked.append(address)
        return True

    monkeypatch.setattr(worker_pool, "host_answers", answers)
    pool.update([worker("slow")])
    for _ in range(3):
        pool.suspect("slow")
        eventually(lambda: not pool._members["slow"].probing)
    pool.suspect("unknown")
    assert asked == ["127.0.0.1:9"]
    assert not pool._members["slow"].unreachable


def test_a_worker_whose_host_does_not_answer_is_used_if_no_other_is_left(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, before = threading.Semaphore(0), running("probe")

    def host_answers(address: str) -> bool:
        tried.release()
        return False

    monkeypatch.setattr(worker_pool, "host_answers", host_answers)
    monkeypatch.setattr(worker_pool, "ANSWER_SECONDS", 0.01)
    pool.update([worker("a"), worker("b")])
    pool.suspect("a")
    assert all(tried.acquire(timeout=SECONDS) for _ in range(3)), "it is asked again and again"
    assert {acquire(pool, key) for key in KEYS[0]} == {"b"}
    assert pool.any_stub() is pool._members["b"].stub
    pool.update([worker("a")])
    for _ in KEYS[0]:
        pool.release("b", failed=False)
    assert {acquire(pool, key) for key in KEYS[0]} == {"a"}
    for _ in KEYS[0]:
        pool.release("a", failed=False)
    (probe,) = running("probe") - before
    pool.update([])
    probe.join(SECONDS)
    assert not probe.is_alive(), "a worker that has left is not asked for"


def test_a_worker_that_sends_meanwhile_is_not_left(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host may be reached over the connection that exists, and not over a new one."""
    link: Any = MagicMock(is_broken=False, received_at=float("-inf"))
    answers = iter([False, False, False, True])

    def host_answers(address: str) -> bool:
        answer = next(answers)
        link.received_at = time.monotonic()
        return answer

    monkeypatch.setattr(worker_pool, "host_answers", host_answers)
    monkeypatch.setattr(worker_pool, "ANSWER_SECONDS", 0.01)
    pool.update([worker("a")])
    pool._members["a"].link = link
    pool.suspect("a")
    eventually(lambda: not pool._members["a"].probing)
    assert next(answers, None) is None
    assert not pool._members["a"].unreachable
    link.abandon.assert_not_called()


def test_the_connection_of_a_worker_breaks_once_while_its_host_does_not_answer(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no other worker, the next connection may work."""
    links: list[Any] = [MagicMock(received_at=float("-inf")) for _ in range(2)]
    answers = iter([False, False, False, True])

    def host_answers(address: str) -> bool:
        if links[0].abandon.called:
            pool._members["a"].link = links[1]
        return next(answers)

    monkeypatch.setattr(worker_pool, "host_answers", host_answers)
    monkeypatch.setattr(worker_pool, "ANSWER_SECONDS", 0.01)
    pool.update([worker("a")])
    pool._members["a"].link = links[0]
    pool.suspect("a")
    eventually(lambda: not pool._members["a"].probing)
    assert [one.abandon.call_count for one in links] == [1, 0]


def test_a_worker_is_asked_for_less_and_less_often_while_it_sends_nothing(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def host_answers(address: str) -> bool:
        asked.append(address)
        return True

    monkeypatch.setattr(worker_pool, "host_answers", host_answers)
    pool.update([worker("a")])
    member = pool._members["a"]
    link: Any = MagicMock(is_broken=False, received_at=float("-inf"))
    member.link = link

    def interval() -> float:
        """Return the seconds until it may be asked for again."""
        member.probed_at = float("-inf")
        for _ in range(2):
            pool.suspect("a")
            eventually(lambda: not member.probing)
        return member.probe_seconds

    assert [interval() for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    link.received_at = time.monotonic()
    assert interval() == 2
    assert len(asked) == 8


def test_a_worker_that_left_stays_until_its_streams_have_ended(pool: WorkerPool) -> None:
    pool.update([worker("a")])
    assert acquire(pool) == "a"
    pool.update([])
    assert acquire(pool) is None
    assert pool.open_streams == 1
    pool.release("a", failed=False)
    pool.update([])
    assert not pool._members


def test_a_worker_is_lost_once_and_not_while_it_drains(pool: WorkerPool) -> None:
    pool.update([worker("a"), worker("b", draining=True)])
    for name in ("a", "a", "b", "unknown"):
        pool.record_loss(name)
    assert pool.lost_workers == 1


def test_added_workers_do_not_replace_others(pool: WorkerPool) -> None:
    pool.update([worker("a")])
    pool.add([worker("b")])
    assert {acquire(pool, key) for key in KEYS[0]} == {"a", "b"}


@pytest.mark.parametrize("delayed", [True, False])
def test_streams_that_fail_do_not_end_the_back_off_of_others(
    pool: WorkerPool, delayed: bool
) -> None:
    pool.update([worker("a")])
    assert acquire(pool) == "a"
    ended = threading.Event()

    def fail() -> None:
        pool.release("a", failed=True)
        pool.later(0.0, lambda: None)

    failing = threading.Timer(0.05, fail)
    failing.start()
    began = time.monotonic()
    if delayed:
        pool.later(0.3, ended.set)
        assert ended.wait(SECONDS)
    else:
        pool.wait(0.3)
    assert time.monotonic() - began >= 0.3
    failing.join()


# Actions that are called later.


def test_actions_are_called_when_their_time_has_come(pool: WorkerPool) -> None:
    called: list[tuple[str, float]] = []
    done = threading.Event()
    began = time.monotonic()

    def record(name: str) -> None:
        called.append((name, time.monotonic() - began))
        if len(called) == 3:
            done.set()

    for name, seconds in (("second", 0.2), ("first", 0.05), ("third", 0.3)):
        pool.later(seconds, functools.partial(record, name))
    assert done.wait(SECONDS)
    assert [name for name, _ in called] == ["first", "second", "third"]
    due = (0.05, 0.2, 0.3)
    assert all(at >= seconds for (_, at), seconds in zip(called, due, strict=True))


def test_a_report_of_the_membership_calls_the_actions_from_before(pool: WorkerPool) -> None:
    called, other = threading.Event(), threading.Event()
    pool.later(30, called.set)
    pool.update([worker("a")])
    pool.later(30, other.set)
    assert called.wait(SECONDS)
    assert not other.wait(0.05), "this action knows the report"
    pool.add([])
    assert other.wait(SECONDS)


def test_an_action_may_ask_to_be_called_again(pool: WorkerPool) -> None:
    times, done = iter(range(3)), threading.Event()

    def again() -> None:
        if next(times, None) is None:
            done.set()
        else:
            pool.later(0.0, again)

    pool.later(0.0, again)
    assert done.wait(SECONDS)


def test_no_action_is_called_under_the_lock_of_the_pool(pool: WorkerPool) -> None:
    done = threading.Event()

    def use_the_pool() -> None:
        other = threading.Thread(target=pool.update, args=([worker("a")],), daemon=True)
        other.start()
        other.join(SECONDS)
        if not other.is_alive():
            done.set()

    pool.later(0.0, use_the_pool)
    assert done.wait(2 * SECONDS)


def running(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


def test_the_thread_ends_when_no_action_is_left(pool: WorkerPool) -> None:
    before = running("later")  # that of an earlier test may still end
    done = threading.Event()
    pool.later(0.02, done.set)
    assert done.wait(SECONDS)
    eventually(lambda: running("later") <= before)
    done.clear()
    pool.later(0.0, done.set)
    assert done.wait(SECONDS), "it starts again"


def test_an_action_that_was_called_is_not_kept(pool: WorkerPool) -> None:
    class Action:
        def __call__(self) -> None:
            """Do nothing."""

    action = Action()
    freed = weakref.ref(action)
    pool.later(30, lambda: None)
    pool.later(0.0, action)
    del action
    eventually(lambda: freed() is None)


def test_a_closed_pool_calls_no_action(pool: WorkerPool) -> None:
    before = running("later")  # that of an earlier test may still end
    called: list[int] = []
    pool.later(0.05, lambda: called.append(1))
    pool.close()
    pool.later(0.0, lambda: called.append(2))
    eventually(lambda: running("later") <= before)
    assert not threading.Event().wait(0.1)  # the time of the first action has come
    assert not called


# Links.


def test_the_streams_of_a_worker_share_its_link_while_it_works(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[MagicMock] = []

    def connect(stub: object, worker_id: str, direct: object) -> MagicMock:
        made.append(MagicMock(is_broken=False, worker_id=worker_id))
        return made[-1]

    monkeypatch.setattr(worker_pool, "WorkerConnection", connect)
    pool.update([worker("a")])
    links = [pool.acquire(KEYS, key) for key in KEYS[0]]
    assert links == [("a", made[0])] * 4
    made[0].is_broken = True
    assert pool.acquire(KEYS, 1) == ("a", made[1])
    assert pool.acquire(KEYS, 2) == ("a", made[1])
    assert len(made) == 2


class GivenLinks:
    """Records whether each link that is opened may use a direct connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> None:
        self.now, self._pool = 1000.0, pool
        self.links: list[tuple[MagicMock, DirectTransfer | None]] = []
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(worker_pool, "time", clock)
        monkeypatch.setattr(direct_reader, "time", clock)
        monkeypatch.setattr(worker_pool, "WorkerConnection", self._connect)
        pool.update(
            WorkerInfo(worker_id=name, address=f"{host}:9")
            for name, host in (("a", "127.0.0.1"), ("b", "[::1]"))
        )

    def _connect(
        self, stub: object, worker_id: str, direct: DirectTransfer | None = None
    ) -> MagicMock:
        self.links.append((MagicMock(is_broken=False), direct))
        return self.links[-1][0]

    def open(self, name: str) -> DirectTransfer | None:
        """Open a link after the last one of the worker has broken."""
        before = len(self.links)
        self._pool._members[name].open_link()
        assert len(self.links) == before + 1
        self.links[-1][0].is_broken = True
        return self.links[-1][1]


def test_each_link_gets_a_direct_connection_to_the_host_of_the_worker(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = GivenLinks(monkeypatch, pool)
    found = [given.open(name) for name in "aab"]
    assert [one._host if one else None for one in found] == ["127.0.0.1", "127.0.0.1", "::1"]
    assert found[0] is not found[1]


def test_only_grpc_is_used_for_a_while_after_a_direct_connection_broke(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = GivenLinks(monkeypatch, pool)
    direct = given.open("a")
    assert direct is not None
    direct.record_failure()
    for seconds in (0.0, 30.0, 59.9):
        given.now = 1000.0 + seconds
        assert given.open("a") is None
        assert given.open("b") is not None, "only this worker"
    given.now = 1060.0
    again = given.open("a")
    assert again is not None
    assert again is not direct
    again.record_failure()
    given.now = 1119.0
    assert given.open("a") is None


def test_only_grpc_is_used_if_the_input_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(Credentials(), may_transfer=False)
    given = GivenLinks(monkeypatch, pool)
    assert given.open("a") is None
    pool.close()


def test_a_report_of_the_dispatcher_ends_the_wait(pool: WorkerPool) -> None:
    reporting = threading.Timer(0.05, lambda: pool.update([worker("a")]))
    reporting.start()
    began = time.monotonic()
    pool.wait(10)
    assert time.monotonic() - began < 5
    reporting.join()


def test_closing_ends_the_wait(pool: WorkerPool) -> None:
    ending = threading.Timer(0.05, pool.close)
    ending.start()
    began = time.monotonic()
    with pytest.raises(Cancelled):  # otherwise a caller would try again, without waiting
        pool.wait(10)
    assert time.monotonic() - began < 5
    ending.join()


def test_channels_are_closed_when_they_are_unused(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels: dict[str, MagicMock] = {}

    def open_channel(address: str, _: object, *, server: str) -> MagicMock:
        assert server == "worker"
        return channels.setdefault(address, MagicMock())

    monkeypatch.setattr(worker_pool, "open_channel", open_channel)
    pool.update([WorkerInfo(worker_id=name, address=name) for name in "ab"])
    pool.update([WorkerInfo(worker_id="b", address="b")])
    assert [channels[name].close.called for name in "ab"] == [True, False]
    pool.close()
    assert channels["b"].close.called
    assert pool.any_stub() is None


def test_the_stub_of_the_worker_that_works_longest_is_returned(pool: WorkerPool) -> None:
    pool.update([worker("a"), worker("b"), worker("c", draining=True)])
    failed = acquire(pool)
    assert failed is not None
    pool.release(failed, failed=True)
    other = {"a": "b", "b": "a"}[failed]
    assert pool.any_stub() is pool._members[other].stub


def test_what_a_worker_reports_about_a_stalled_split_is_returned(pool: WorkerPool) -> None:
    stalled = StalledSplit(dataset="train", epoch=1, split=2, row=3, seconds=12)
    pool.update([WorkerInfo(worker_id="a", address="127.0.0.1:9", stalled=[stalled]), worker("b")])
    assert pool.stalled("a", "train", 1, 2) == "the worker has computed its row 3 for 12 s"
    stalled.at = "in rows (data.py:3)"
    pool.update([WorkerInfo(worker_id="a", address="127.0.0.1:9", stalled=[stalled]), worker("b")])
    assert pool.stalled("a", "train", 1, 2).endswith(" for 12 s, in rows (data.py:3)")
    others = [("a", "train", 1, 3), ("b", "train", 1, 2), ("unknown", "train", 1, 2)]
    assert [pool.stalled(*one) for one in others] == [""] * 3


DATA = "data:rows"
JOB = Job(entry_point=EntryPoint(target=DATA), first_run="d.1")


def crashed(name: str, split: int = 2, row: int = 3, crash: str = "Aborted") -> WorkerInfo:
    """Return a worker that reports that a split ended the process before it."""
    report = StalledSplit(dataset=DATA, epoch=1, split=split, row=row, crash=crash, first_run="d.1")
    return WorkerInfo(worker_id=name, address="127.0.0.1:9", stalled=[report])


def test_a_split_that_ended_two_workers_is_reported_once(pool: WorkerPool) -> None:
    for _ in range(2):  # each worker repeats its report
        pool.update([crashed("a"), crashed("b", split=4)])
        assert not pool.crash(JOB, 1, 2)
    assert pool.stalled("a", DATA, 1, 2) == ""
    pool.update([crashed("c", row=5)])
    assert pool.crash(JOB, 1, 2) == (
        "row 5 of split 2 of dataset data:rows ended a worker in epoch 1: Aborted. It has ended 2 "
        "workers. Fix what this line calls, or skip the row"
    )
    pool.update([crashed("c"), worker("d")])
    assert not pool.crash(JOB, 1, 2)


def test_kills_count_if_three_hit_the_same_row(pool: WorkerPool) -> None:
    """A kill may come from outside, when a split happens to be at some row."""
    pool.add([crashed(str(i), row=row, crash=KILLED) for i, row in enumerate((3, 4, 5, 6, 3))])
    pool.update([crashed("aborted")])
    assert not pool.crash(JOB, 1, 2)
    pool.update([crashed("third", crash=KILLED)])
    assert not pool.crash(JOB, 1, 3)
    error = pool.crash(JOB, 1, 2)
    assert "row 3 of split 2 of dataset data:rows ended a worker in epoch 1: SIGKILL" in error
    assert "Raise the memory limit in spec.workers.template" in error


def test_a_description_that_ended_two_workers_of_this_consumer_is_reported(
    pool: WorkerPool,
) -> None:
    report = StalledSplit(
        dataset=DATA, step=STEPS[0], crash="Aborted", first_run="mine", at="in f (data.py:3)"
    )
    for name in ("a", "b"):
        assert not pool.description_crash(JOB, "mine")
        pool.add([WorkerInfo(worker_id=name, address="127.0.0.1:9", stalled=[report])])
    assert not pool.description_crash(JOB, "of another start"), "the code may have changed"
    assert not pool.crash(Job(entry_point=JOB.entry_point, first_run="mine"), 0, 0)
    assert pool.description_crash(JOB, "mine") == (
        "importing the module of dataset data:rows ended a worker: Aborted, in f (data.py:3). It "
        "has ended 2 workers. Fix what this line calls"
    )


def test_a_description_that_takes_long_is_named(pool: WorkerPool) -> None:
    report = StalledSplit(dataset=DATA, step=STEPS[1], seconds=12, at="in f (data.py:3)")
    pool.update([WorkerInfo(worker_id="a", address="127.0.0.1:9", stalled=[report])])
    assert pool.slow_description(DATA) == (
        "describing dataset data:rows has taken 12 s, in f (data.py:3)"
    )
    assert pool.slow_description("other:rows") == ""
    crashed = StalledSplit(dataset="other:rows", step=STEPS[1], crash="Aborted")
    pool.update([WorkerInfo(worker_id="a", address="127.0.0.1:9", stalled=[crashed])])
    assert pool.slow_description("other:rows") == "", "it does not run"
    assert pool.stalled("a", DATA, 0, 0) == "", "it is no split"


def test_crashes_of_an_earlier_run_do_not_count(pool: WorkerPool) -> None:
    """Workers repeat their reports while they live. The user has replaced a file since."""
    pool.update([crashed("a"), crashed("b")])
    assert pool.crash(Job(entry_point=JOB.entry_point, first_run="d.2"), 1, 2) == ""
    assert pool.crash(JOB, 1, 2)


def test_a_release_of_a_worker_that_is_gone_is_ignored(pool: WorkerPool) -> None:
    pool.release("gone", failed=True)
    assert pool.open_streams == 0


# The worker of the sidecar's own pod.


@given(st.floats(0.0, 1.0), st.lists(st.booleans(), max_size=60))
def test_the_own_worker_gets_its_share_of_the_open_streams(
    share: float, openings: list[bool]
) -> None:
    pool = WorkerPool(Credentials())
    pool.update([worker("own", pod="p"), worker("b"), worker("c")])
    pool._local_share = share
    chosen: list[str] = []
    for opens in openings:
        if opens or not chosen:
            local = chosen.count("own")
            chosen.append(str(acquire(pool)))
            # It is chosen exactly while it has less than its share.
            assert (chosen[-1] == "own") == (local < share * len(chosen))
        else:
            pool.release(chosen.pop(0), failed=False)
    pool.close()


def test_all_streams_are_local_while_the_own_worker_suffices(pool: WorkerPool) -> None:
    pool.update([worker("own", pod="p", cpus=4), worker("b", cpus=4)])
    pool.share_locally(LocalShare(demand=100.0, rate=100.0), 1)
    assert {acquire(pool, key) for key in KEYS[0]} == {"own"}


def test_new_streams_go_elsewhere_when_the_trainer_needs_its_cpus(pool: WorkerPool) -> None:
    measured = LocalShare(demand=100.0, rate=100.0)
    pool.update([worker("own", pod="p", cpus=4), worker("b", cpus=4)])
    pool.share_locally(measured, 1)
    before = [acquire(pool, key) for key in KEYS[0]]
    slow = LocalShare(demand=100.0, rate=1.0)
    pool.update([worker("own", pod="p", cpus=1), worker("b", cpus=4)])
    pool.share_locally(slow, 1)
    assert {acquire(pool, key) for key in KEYS[0]} == {"b"}
    assert before == ["own"] * 4  # open streams stay
    pool.update([worker("own", pod="p", cpus=4), worker("b", cpus=4)])
    pool.share_locally(measured, 1)
    assert {acquire(pool, key) for key in KEYS[0]} == {"own"}


def test_ranks_share_the_own_worker(pool: WorkerPool) -> None:
    pool.update([worker("own", pod="p", cpus=2), worker("b", cpus=4)])
    measured = LocalShare(demand=100.0, rate=100.0)
    for ranks, share in ((1, 1.0), (2, 0.9), (4, 0.45)):
        pool.share_locally(measured, 1, ranks)
        assert pool._local_share == pytest.approx(share)


def test_consumers_share_the_other_workers(pool: WorkerPool) -> None:
    infos = [worker("own", pod="p", cpus=2), worker("b", cpus=4), worker("c", cpus=4)]
    pool.update([*infos, worker("d", draining=True, cpus=90)])
    pool.share_locally(LocalShare(), 4)
    assert pool._local_share == 0.5  # a quarter of 8 CPUs is for this consumer


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_only_worker_gets_all_streams(pool: WorkerPool, share: float) -> None:
    pool._local_share = share
    pool.update([worker("own", pod="p")])
    assert acquire(pool) == "own"
    pool.update([worker("b")])
    assert acquire(pool) == "b"


def test_streams_go_elsewhere_while_the_own_worker_fails(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.update([worker("own", pod="p"), worker("b")])
    assert acquire(pool) == "own"
    pool.release("own", failed=True)
    assert acquire(pool) == "b"
    monkeypatch.setattr(worker_pool, "_RETRY_SECONDS", -1.0)
    assert acquire(pool) == "own"


def test_only_the_counters_of_local_workers_are_returned(pool: WorkerPool) -> None:
    own = WorkerInfo(worker_id="own", address="127.0.0.1:9", pod="p", rows=7, busy_seconds=2.5)
    pool.update([own, worker("b")])
    assert pool.local_counters() == {"own": WorkerCounters(7, 2.5)}


class CountingWorker(Worker):
    """Counts its connections. The first one breaks after some messages."""

    def __init__(self, breaks_after: int = 1 << 30) -> None:
        super().__init__(4 * ROWS)
        self.requests: list[list[worker_pb2.ConnectRequest]] = []
        self._breaks_after = breaks_after

    def Connect(self, requests: Any, context: Any) -> Iterator[bytes]:  # noqa: N802
        self.requests.append([])
        messages = super().Connect(self._recorded(requests, self.requests[-1]), context)
        for count, message in enumerate(messages):
            if len(self.requests) == 1 and count >= self._breaks_after:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
            yield message

    def _recorded(
        self, requests: Any, found: list[worker_pb2.ConnectRequest]
    ) -> Iterator[worker_pb2.ConnectRequest]:
        for request in requests:
            found.append(request)
            yield request


def open_all(shared: StreamContext) -> list[SplitStream]:
    return [open_split(shared, split, at, 0, None) for at, split in enumerate(shared.plan.deal[0])]


def test_all_splits_of_a_worker_share_one_call(pool: WorkerPool) -> None:
    worker = CountingWorker()
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool, splits=4)
    streams = open_all(shared)
    assert [take_all(shared, stream) for stream in streams] == [ROWS] * 4
    assert len(worker.requests) == 1
    server.stop(0)


def test_streams_of_a_connection_that_breaks_continue_on_a_new_one(pool: WorkerPool) -> None:
    worker = CountingWorker(breaks_after=5)
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool, splits=4)
    streams = open_all(shared)
    assert [take_all(shared, stream) for stream in streams] == [ROWS] * 4
    assert len(worker.requests) == 2
    assert shared.stats.reconnects.total() <= 4
    assert pool.lost_workers == 1
    server.stop(0)


def test_a_closed_pool_ends_the_connection(pool: WorkerPool) -> None:
    worker = CountingWorker()
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool)
    assert take_all(shared, open_stream(shared)) == 4 * ROWS

    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "worker-worker"]

    assert threads()
    pool.close()
    eventually(lambda: not threads())
    server.stop(0)
