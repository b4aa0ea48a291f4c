"""Events that end a run."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from distributed_input.runner.processes.run_events import (
    RunEvents,
    Termination,
    due_signal,
    handle_signals,
)
from distributed_input.runner.processes.supervised_process import ProcessFailedError


def failure(name: str) -> ProcessFailedError:
    return ProcessFailedError("why", Path(name))


def test_the_first_failure_is_kept() -> None:
    events = RunEvents()
    events.fail(failure("worker-0"))
    events.fail(failure("worker-1"))
    assert events.failure is not None
    assert events.failure.log == Path("worker-0")
    assert events.changed.is_set()


def test_failures_during_the_shutdown_are_ignored() -> None:
    events = RunEvents(closed=True)
    events.fail(failure("worker-0"))
    assert events.failure is None


def test_a_second_signal_escalates_the_first() -> None:
    events = RunEvents()
    events.interrupt(signal.SIGINT)
    events.interrupt(signal.SIGTERM)
    assert events.interrupted == signal.SIGINT
    assert events.termination is not None
    assert (events.termination.signal, events.termination.escalations) == (signal.SIGINT, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_are_handled_on_the_event_loop(number: int) -> None:
    async def receive() -> int:
        received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
        with handle_signals(received.set_result, lambda: None):
            os.kill(os.getpid(), number)
            return await asyncio.wait_for(received, 10)

    assert asyncio.run(receive()) == number


def due(termination: Termination, now: float) -> int:
    return due_signal(termination, now, grace=30.0)


def test_an_interrupt_becomes_a_sigterm_and_then_a_sigkill() -> None:
    interrupt = Termination(signal.SIGINT, since=100.0)
    assert due(interrupt, 100.0) == signal.SIGINT
    assert due(interrupt, 129.9) == signal.SIGINT
    assert due(interrupt, 130.0) == signal.SIGTERM
    assert due(interrupt, 140.0) == signal.SIGKILL


def test_a_sigterm_becomes_a_sigkill() -> None:
    terminate = Termination(signal.SIGTERM, since=100.0)
    assert due(terminate, 129.9) == signal.SIGTERM
    assert due(terminate, 130.0) == signal.SIGKILL


def test_escalations_send_sigterm_and_then_sigkill_early() -> None:
    once = Termination(signal.SIGINT, since=100.0, escalations=1, escalated=101.0)
    assert due(once, 101.0) == signal.SIGTERM
    assert due(once, 104.0) == signal.SIGKILL
    assert due(replace(once, escalations=2, escalated=101.5), 101.5) == signal.SIGKILL
