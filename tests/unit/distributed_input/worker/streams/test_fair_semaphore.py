"""The semaphore is first come, first served, and bounded by the CPUs in use."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from distributed_input.worker.streams import fair_semaphore as module
from distributed_input.worker.streams.fair_semaphore import FairSemaphore
from distributed_input.worker.streams.lending import STUCK_SECONDS, CpuUse

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
            with semaphore:
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    def meet() -> None:
        with semaphore:
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
        with semaphore:
            order.append("waiting")

    thread = threading.Thread(target=wait)
    with semaphore:
        thread.start()
        while not semaphore.waiting:
            pass
    with semaphore:
        order.append("returning")
    thread.join(10)
    assert order == ["waiting", "returning"]


def test_holders_that_wait_do_not_keep_others_waiting() -> None:
    """Without lent permits, this takes 16 s."""
    semaphore, began = FairSemaphore(1), time.monotonic()

    def work() -> None:
        for _ in range(4):
            with semaphore:
                time.sleep(0.1)

    run([work] * 40)
    assert time.monotonic() - began < 8
    assert semaphore.busy_seconds <= time.monotonic() - began


def test_a_holder_that_never_returns_is_replaced_even_if_the_cpus_are_busy() -> None:
    now = 0.0
    semaphore, returns = FairSemaphore(1, lambda: now), threading.Event()
    entered = threading.Event()

    def stuck() -> None:
        with semaphore:
            entered.set()
            returns.wait(30)

    def work() -> None:
        with semaphore:
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
    semaphore.adjust(CpuUse(0.0, 0.0))

    def work() -> None:
        with semaphore:
            both.wait(10)
            both.wait(10)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    both.wait(10)  # the second thread has a lent permit
    now = 5.0
    both.wait(10)
    for thread in threads:
        thread.join(10)
    assert semaphore.busy_seconds == 5.0
