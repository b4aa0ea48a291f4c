"""Events that end a run."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from distributed_input.runner.processes.run_events import RunEvents, handle_signals
from distributed_input.runner.processes.supervised_process import ProcessFailedError


def failure(name: str) -> ProcessFailedError:
    return ProcessFailedError(name, "why", Path("log"))


def test_the_first_failure_is_kept() -> None:
    events = RunEvents()
    events.fail(failure("worker-0"))
    events.fail(failure("worker-1"))
    assert events.failure is not None
    assert events.failure.process == "worker-0"
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
