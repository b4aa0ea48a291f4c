"""Tasks run in order, and no more at the same time than there are permits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable

import pytest

from distributed_input.worker.compute import compute_pool as module
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.compute.lending import DELAY_SECONDS, STUCK_SECONDS, CpuUse
from distributed_input.worker.compute.task_queue import ComputeTask, Need

BUSY, IDLE = CpuUse(1.0, 0.0), CpuUse(0.0, 0.0)
WAIT_SECONDS = 20.0


class Tasks:
    """Tasks that run until the test releases them, one for each release.

    Attributes:
        begun: numbers of the tasks that have begun, in order.
    """

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.threads: list[int] = []
        self._entered, self._released = threading.Semaphore(0), threading.Semaphore(0)
        self._ended = threading.Semaphore(0)

    def task(
        self, number: int = 0, *needs: Need, following: Iterable[ComputeTask] = ()
    ) -> ComputeTask:
        def run() -> Iterable[ComputeTask]:
            self.begun.append(number)
            self.threads.append(threading.get_ident())
            self._entered.release()
            assert self._released.acquire(timeout=2 * WAIT_SECONDS)  # longer than a test
            self._ended.release()
            return following

        return ComputeTask(run, *needs)

    def run(self, count: int) -> bool:
        """Return whether `count` more tasks begin, and no other."""
        begin = all(self._entered.acquire(timeout=WAIT_SECONDS) for _ in range(count))
        return begin and not self._entered.acquire(timeout=0.05)

    def release(self, count: int) -> None:
        for _ in range(count):
            self._released.release()

    def end(self, count: int) -> None:
        """Let tasks end, and wait for this."""
        self.release(count)
        assert all(self._ended.acquire(timeout=WAIT_SECONDS) for _ in range(count))


@pytest.fixture
def tasks() -> Generator[Tasks, None, None]:
    tasks = Tasks()
    yield tasks
    tasks.release(1000)


def pool_of(permits: int, clock: Callable[[], float] = time.monotonic) -> ComputePool:
    """Return a pool that lends no permits."""
    pool = ComputePool(permits, clock)
    pool.resize(permits, may_lend=False)
    return pool


@pytest.mark.parametrize("permits", [1, 2, 5])
def test_as_many_tasks_run_as_there_are_permits(permits: int, tasks: Tasks) -> None:
    pool = pool_of(permits)
    pool.submit(tasks.task() for _ in range(8))
    assert tasks.run(permits)
    assert pool.waiting == 8 - permits
    assert pool.wanted == 8
    tasks.end(1)
    assert tasks.run(1)
    tasks.end(7)
    assert tasks.run(8 - permits - 1)


def test_no_more_tasks_run_at_the_same_time_than_there_are_permits() -> None:
    pool, lock, done = pool_of(2), threading.Lock(), threading.Event()
    inside = most = ended = 0

    def run() -> list[ComputeTask]:
        nonlocal inside, most, ended
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0)
        with lock:
            inside -= 1
            ended += 1
            if ended == 600:
                done.set()
            return [ComputeTask(run)] if ended <= 594 else []

    pool.submit(ComputeTask(run) for _ in range(6))
    assert done.wait(WAIT_SECONDS)
    assert 1 <= most <= 2


@pytest.mark.parametrize("joined", [False, True])
def test_the_task_whose_split_is_read_first_is_the_next(joined: bool, tasks: Tasks) -> None:
    pool = pool_of(1)
    pool.submit([tasks.task(0)])
    assert tasks.run(1)
    waiting = [tasks.task(ordinal, Need(order=(0, ordinal))) for ordinal in (7, 3, 5)]
    pool.submit(waiting)
    if joined:
        pool.add_need(waiting[2], Need(order=(0, 2)))
    tasks.end(4)
    assert tasks.run(3)
    assert tasks.begun == ([0, 5, 3, 7] if joined else [0, 3, 5, 7])


def test_a_task_that_follows_queues_behind_the_waiting_ones(tasks: Tasks) -> None:
    pool = pool_of(1)
    pool.submit([tasks.task(0, following=[tasks.task(2)])])
    assert tasks.run(1)
    pool.submit([tasks.task(1)])
    tasks.end(3)
    assert tasks.run(2)
    assert tasks.begun == [0, 1, 2]


def test_tasks_that_follow_run_in_the_same_thread(tasks: Tasks) -> None:
    third = tasks.task(3)
    second = tasks.task(2, following=[third])
    pool_of(1).submit([tasks.task(1, following=[second])])
    tasks.end(3)
    assert tasks.run(3)
    assert len(set(tasks.threads)) == 1


def test_a_task_may_have_several_that_follow(tasks: Tasks) -> None:
    pool_of(3).submit([tasks.task(0, following=[tasks.task(1), tasks.task(2), tasks.task(3)])])
    assert tasks.run(1)
    tasks.end(1)
    assert tasks.run(3)


def test_a_task_that_fails_releases_its_permit(tasks: Tasks) -> None:
    def fail() -> Iterable[ComputeTask]:
        raise RuntimeError("a bug")

    pool = ComputePool(1)
    pool.submit([ComputeTask(fail), tasks.task(1)])
    assert tasks.run(1)
    tasks.end(1)


def test_a_cancelled_task_does_not_run(tasks: Tasks) -> None:
    pool = pool_of(1)
    running, waiting = tasks.task(0), tasks.task(1)
    pool.submit([running, waiting, tasks.task(2)])
    assert tasks.run(1)
    pool.cancel(waiting)
    pool.cancel(running)  # too late
    assert pool.waiting == 1
    tasks.end(2)
    assert tasks.run(1)
    assert tasks.begun == [0, 2]


def compute_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "compute"}


def test_threads_are_reused_and_end_when_they_have_no_work(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.5)
    pool, before = pool_of(2), compute_threads()
    for _ in range(5):
        pool.submit([tasks.task(), tasks.task()])
        assert tasks.run(2)
        tasks.end(2)
        assert len(compute_threads() - before) <= 2
    threads = compute_threads() - before
    assert threads
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    pool.submit([tasks.task()])
    assert tasks.run(1)


@pytest.mark.slow
def test_tasks_that_wait_do_not_keep_others_waiting() -> None:
    """Without lent permits, one task waits at a time."""
    pool, began, done = ComputePool(1), time.monotonic(), threading.Semaphore(0)
    waiting: set[int] = set()
    most = 0

    def task(left: int) -> ComputeTask:
        def run() -> list[ComputeTask]:
            nonlocal most
            waiting.add(threading.get_ident())
            most = max(most, len(waiting))
            time.sleep(0.1)
            waiting.discard(threading.get_ident())
            done.release()
            return [task(left - 1)] if left > 1 else []

        return ComputeTask(run)

    pool.submit(task(4) for _ in range(40))
    assert all(done.acquire(timeout=WAIT_SECONDS) for _ in range(160))
    assert most >= 4
    assert pool.busy_seconds <= time.monotonic() - began


@pytest.mark.parametrize(("helps", "most", "last"), [(False, 2, 1), (True, 4, 4)])
def test_permits_are_lent_only_while_tasks_end_more_often(
    tasks: Tasks, helps: bool, most: int, last: int
) -> None:
    """Tasks that wait for the same thing end no more often if more of them run."""
    now = 0.0
    pool = ComputePool(1, lambda: now)
    pool._lender = threading.current_thread()  # this test adjusts
    pool.submit(tasks.task() for _ in range(20))
    found = []
    for _ in range(14):
        now += 0.3
        pool._ended += 20 * (pool.capacity if helps else 1)
        pool.adjust(IDLE)
        found.append(pool.capacity)
    assert max(found) == most
    assert found[-1] == last


def test_a_task_that_never_returns_is_replaced_even_if_the_cpus_are_busy(tasks: Tasks) -> None:
    now = 0.0
    pool = pool_of(1, lambda: now)
    pool.submit([tasks.task(0), tasks.task(1)])
    assert tasks.run(1)
    pool.adjust(BUSY)
    assert tasks.run(0)
    now = STUCK_SECONDS + 1
    pool.adjust(BUSY)
    assert tasks.run(1)
    assert tasks.begun == [0, 1]
    assert pool.busy_seconds <= now


@pytest.mark.parametrize(
    ("first", "reader", "seconds", "lends"),
    [
        ((0, 0), "a", 2 * DELAY_SECONDS, True),
        ((0, 0), "a", DELAY_SECONDS / 2, False),
        ((0, 1), "a", 2 * DELAY_SECONDS, False),
        ((0, 0), "b", 2 * DELAY_SECONDS, False),  # jobs have their turns
    ],
)
def test_a_long_task_for_later_rows_delays_no_task_for_earlier_ones(
    tasks: Tasks, first: tuple[int, int], reader: str, seconds: float, lends: bool
) -> None:
    """It may open a split. On a worker with one CPU, no row would come meanwhile."""
    now = 0.0
    pool = pool_of(1, lambda: now)
    pool._lender = threading.current_thread()  # this test adjusts
    pool.submit([tasks.task(1, Need(("a", 0), (0, 1)))])
    assert tasks.run(1)
    gone = tasks.task(3, Need(("a", 0), (0, 0)))
    pool.submit([gone, tasks.task(2, Need((reader, 0), first))])
    pool.cancel(gone)
    now = seconds
    pool.adjust(BUSY)
    assert tasks.run(int(lends))
    assert tasks.begun == [1, 2][: 1 + lends]


def test_busy_seconds_count_no_more_tasks_than_permits(tasks: Tasks) -> None:
    now = 0.0
    pool = ComputePool(1, lambda: now)
    pool._lender = threading.current_thread()  # this test adjusts
    pool.submit([tasks.task(), tasks.task()])
    assert tasks.run(1)
    for seconds in (1.0, 2.0):
        now = seconds
        pool.adjust(IDLE)
    assert tasks.run(1)
    assert pool.capacity == 2
    now = 5.0
    tasks.end(2)
    assert pool.busy_seconds == 5.0


def test_more_permits_admit_waiting_tasks_and_fewer_admit_none(tasks: Tasks) -> None:
    pool = pool_of(1)
    pool.submit(tasks.task() for _ in range(6))
    assert tasks.run(1)
    pool.resize(3, may_lend=False)
    assert tasks.run(2)
    pool.resize(1, may_lend=False)
    assert pool.permits == 1
    tasks.end(2)
    assert tasks.run(0)
    tasks.end(1)
    assert tasks.run(1)


def test_no_permit_is_lent_while_other_processes_use_the_cpus(tasks: Tasks) -> None:
    """The tasks use no CPU, but only because other processes are preferred."""
    now = 0.0
    pool = pool_of(1, lambda: now)
    pool._lender = threading.current_thread()  # this test adjusts
    pool.submit(tasks.task() for _ in range(4))
    assert tasks.run(1)
    for seconds in (1.0, 2.0, 3.0):
        now = seconds
        pool.adjust(IDLE)
    assert tasks.run(0)
    pool.resize(1, may_lend=True)
    for seconds in (4.0, 5.0):
        now = seconds
        pool.adjust(IDLE)
    assert tasks.run(1)


def test_busy_seconds_count_the_permits_of_each_time(tasks: Tasks) -> None:
    now = 0.0
    pool = ComputePool(2, lambda: now)
    pool.submit([tasks.task(), tasks.task()])
    assert tasks.run(2)
    now = 3.0
    pool.resize(1, may_lend=True)
    now = 4.0
    assert pool.busy_seconds == 3.0 * 2 + 1.0
    now = 6.0
    assert pool.permit_seconds == 3.0 * 2 + 3.0


def test_the_reported_capacity_is_at_most_four_places_for_each_permit() -> None:
    pool = ComputePool(2)
    assert pool.capacity == 2
    pool._lent = 5
    assert pool.capacity == 7
    pool._lent = 30
    assert pool.capacity == 8
