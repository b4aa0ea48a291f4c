"""Turns are bounded, and go to whoever waits longest."""

from __future__ import annotations

import threading

from distributed_input.worker.streams.fair_semaphore import Turns


def test_no_more_at_once_than_there_are_turns() -> None:
    turns, lock = Turns(2), threading.Lock()
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with turns:
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 1 <= most <= 2


def test_one_that_comes_back_at_once_waits_behind_the_others() -> None:
    turns = Turns(1)
    order: list[str] = []
    waiting = threading.Event()

    def other() -> None:
        waiting.set()
        with turns:
            order.append("other")

    thread = threading.Thread(target=other)
    with turns:
        thread.start()
        waiting.wait(10)
        while not turns._waiting:
            pass
    with turns:
        order.append("again")
    thread.join(10)
    assert order == ["other", "again"]
