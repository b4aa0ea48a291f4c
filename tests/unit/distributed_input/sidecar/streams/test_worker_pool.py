from __future__ import annotations

import threading
import time
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto.dispatcher_pb2 import WorkerInfo
from distributed_input.api.proto.types_pb2 import StalledSplit
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.streams import worker_pool
from distributed_input.sidecar.streams.local_share import LocalShare, WorkerCounters
from distributed_input.sidecar.streams.worker_pool import WorkerPool

KEYS = ((1, 2, 3, 4),)


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


def test_streams_that_fail_do_not_end_the_back_off_of_others(pool: WorkerPool) -> None:
    pool.update([worker("a")])
    assert acquire(pool) == "a"
    failing = threading.Timer(0.05, lambda: pool.release("a", failed=True))
    failing.start()
    began = time.monotonic()
    pool.wait(0.3)
    assert time.monotonic() - began >= 0.3
    failing.join()


def test_a_report_of_the_dispatcher_ends_the_wait(pool: WorkerPool) -> None:
    reporting = threading.Timer(0.05, lambda: pool.update([worker("a")]))
    reporting.start()
    began = time.monotonic()
    pool.wait(10)
    assert time.monotonic() - began < 5
    reporting.join()


@pytest.mark.parametrize("end", ["close", "wake"])
def test_closing_or_waking_ends_the_wait(pool: WorkerPool, end: str) -> None:
    ending = threading.Timer(0.05, getattr(pool, end))
    ending.start()
    began = time.monotonic()
    pool.wait(10)
    assert time.monotonic() - began < 5
    ending.join()


def test_channels_are_closed_when_they_are_unused(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels: dict[str, MagicMock] = {}

    def open_channel(address: str, _: object) -> MagicMock:
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
    others = [("a", "train", 1, 3), ("b", "train", 1, 2), ("unknown", "train", 1, 2)]
    assert [pool.stalled(*one) for one in others] == [""] * 3


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
