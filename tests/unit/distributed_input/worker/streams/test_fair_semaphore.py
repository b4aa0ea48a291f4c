"""The semaphore serves threads in order, and is bounded by the CPUs in use."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from distributed_input.worker.streams import fair_semaphore as module
from distributed_input.worker.streams.fair_semaphore import FairSemaphore
from distributed_input.worker.streams.lending import STUCK_SECONDS, CpuUse
from distributed_input.worker.streams.permit_queue import Need, PermitRequest
from tests.unit.distributed_input.sidecar.system import eventually

BUSY = CpuUse(1.0, 0.0)


def run(targets: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def test_no_more_threads_enter_than_there_are_permits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpu_use", lambda _: itertools.repeat(BUSY))
    semaphore, lock = FairSemaphore(2), threading.Lock()
    both = threading.Barrier(2)
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with semaphore.permit(PermitRequest()):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    def meet() -> None:
        with semaphore.permit(PermitRequest()):
            both.wait(10)  # passes only if both threads hold a permit

    for target, count in ((work, 6), (meet, 2)):
        threads = [threading.Thread(target=target) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert 1 <= most <= 2
    assert not both.broken


def test_a_thread_that_returns_at_once_queues_behind_the_waiting_ones() -> None:
    semaphore = FairSemaphore(1)
    order: list[str] = []

    def wait() -> None:
        with semaphore.permit(PermitRequest()):
            order.append("waiting")

    thread = threading.Thread(target=wait)
    with semaphore.permit(PermitRequest()):
        thread.start()
        while not semaphore.waiting:
            pass
    with semaphore.permit(PermitRequest()):
        order.append("returning")
    thread.join(10)
    assert order == ["waiting", "returning"]


@pytest.mark.parametrize("joined", [False, True])
def test_the_thread_whose_split_is_read_first_is_the_next(joined: bool) -> None:
    semaphore, served = FairSemaphore(1), []
    semaphore.resize(1, may_lend=False)
    requests = [PermitRequest(Need(order=(0, ordinal))) for ordinal in (7, 3, 5)]

    def wait(request: PermitRequest) -> None:
        with semaphore.permit(request):
            served.append(requests.index(request))

    threads = [threading.Thread(target=wait, args=(request,)) for request in requests]
    with semaphore.permit(PermitRequest()):
        for at, thread in enumerate(threads, 1):
            thread.start()
            while semaphore.waiting < at:
                pass
        if joined:
            semaphore.add_need(requests[2], Need(order=(0, 2)))
    for thread in threads:
        thread.join(10)
    assert served == ([2, 1, 0] if joined else [1, 2, 0])


def test_holders_that_wait_do_not_keep_others_waiting() -> None:
    """Without lent permits, this takes 16 s."""
    semaphore, began = FairSemaphore(1), time.monotonic()

    def work() -> None:
        for _ in range(4):
            with semaphore.permit(PermitRequest()):
                time.sleep(0.1)

    run([work] * 40)
    assert time.monotonic() - began < 8
    assert semaphore.busy_seconds <= time.monotonic() - began


def test_a_holder_that_never_returns_is_replaced_even_if_the_cpus_are_busy() -> None:
    now = 0.0
    semaphore, returns = FairSemaphore(1, lambda: now), threading.Event()
    entered = threading.Event()

    def stuck() -> None:
        with semaphore.permit(PermitRequest()):
            entered.set()
            returns.wait(30)

    def work() -> None:
        with semaphore.permit(PermitRequest()):
            returns.set()

    threads = [threading.Thread(target=stuck), threading.Thread(target=work)]
    threads[0].start()
    assert entered.wait(10)
    semaphore.adjust(BUSY)
    threads[1].start()
    now = STUCK_SECONDS + 1
    semaphore.adjust(BUSY)
    for thread in threads:
        thread.join(30)
    assert returns.is_set()
    assert semaphore.busy_seconds <= now


def test_busy_seconds_count_no_more_holders_than_permits() -> None:
    now = 0.0
    semaphore, both = FairSemaphore(1, lambda: now), threading.Barrier(3)
    semaphore._lender = threading.current_thread()  # this test adjusts

    def work() -> None:
        with semaphore.permit(PermitRequest()):
            both.wait(10)
            both.wait(10)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: semaphore.waiting == 1)
    for seconds in (1.0, 2.0):
        now = seconds
        semaphore.adjust(CpuUse(0.0, 0.0))
    both.wait(10)  # the second thread has a lent permit
    assert semaphore.capacity == 2
    now = 5.0
    both.wait(10)
    for thread in threads:
        thread.join(10)
    assert semaphore.busy_seconds == 5.0


class Holders:
    """Threads that each want the semaphore once, and hold it until they are released."""

    def __init__(self, semaphore: FairSemaphore, count: int) -> None:
        self._semaphore, self.entered = semaphore, threading.Semaphore(0)
        self._release = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._hold) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _hold(self) -> None:
        with self._semaphore.permit(PermitRequest()):
            self.entered.release()
            self._release.acquire(timeout=30)

    def inside(self, count: int) -> bool:
        """Return whether `count` more threads enter, and no other."""
        entered = all(self.entered.acquire(timeout=10) for _ in range(count))
        return entered and not self.entered.acquire(timeout=0.05)

    def leave(self, count: int) -> None:
        for _ in range(count):
            self._release.release()

    def join(self) -> None:
        self.leave(len(self._threads))
        for thread in self._threads:
            thread.join(30)


def test_more_permits_admit_waiting_threads_and_fewer_admit_none() -> None:
    semaphore = FairSemaphore(1)
    semaphore.resize(1, may_lend=False)
    holders = Holders(semaphore, 6)
    assert holders.inside(1)
    semaphore.resize(3, may_lend=False)
    assert holders.inside(2)
    semaphore.resize(1, may_lend=False)
    assert semaphore.permits == 1
    holders.leave(2)
    assert holders.inside(0)
    holders.leave(1)
    assert holders.inside(1)
    holders.join()


def test_no_permit_is_lent_while_other_processes_use_the_cpus() -> None:
    """The holders use no CPU, but only because other processes are preferred."""
    semaphore = FairSemaphore(1)
    semaphore.resize(1, may_lend=False)
    holders = Holders(semaphore, 4)
    assert holders.inside(1)
    semaphore.adjust(CpuUse(0.0, 0.0))
    assert holders.inside(0)
    semaphore.resize(1, may_lend=True)
    semaphore.adjust(CpuUse(0.0, 0.0))
    assert holders.entered.acquire(timeout=10)
    holders.join()


def test_busy_seconds_count_the_permits_of_each_time() -> None:
    now = 0.0
    semaphore = FairSemaphore(2, lambda: now)
    holders = Holders(semaphore, 2)
    assert holders.inside(2)
    now = 3.0
    semaphore.resize(1, may_lend=True)
    now = 4.0
    assert semaphore.busy_seconds == 3.0 * 2 + 1.0
    now = 6.0
    assert semaphore.permit_seconds == 3.0 * 2 + 3.0
    holders.join()


def test_the_reported_capacity_is_at_most_four_places_for_each_permit() -> None:
    semaphore = FairSemaphore(2)
    assert semaphore.capacity == 2
    semaphore._lent = 5
    assert semaphore.capacity == 7
    semaphore._lent = 30
    assert semaphore.capacity == 8
