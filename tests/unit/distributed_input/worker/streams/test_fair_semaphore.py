"""The semaphore is bounded and first come, first served."""

from __future__ import annotations

import threading

from distributed_input.worker.streams.fair_semaphore import FairSemaphore


def test_no_more_threads_enter_than_there_are_permits() -> None:
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
