"""Events that end a run."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from distributed_input.runner.processes.run_events import RunEvents, due_signal, handle_signals
from distributed_input.runner.processes.supervised_process import ProcessFailedError


def failure(name: str) -> ProcessFailedError:
    return ProcessFailedError("why", Path(name))


def test_the_first_failure_is_kept():
    events = RunEvents()
    events.fail(failure("worker-0"))
    events.fail(failure("worker-1"))
    assert events.failure is not None
    assert events.failure.log == Path("worker-0")
    assert events.changed.is_set()


def test_failures_during_the_shutdown_are_ignored():
    events = RunEvents(closed=True)
    events.fail(failure("worker-0"))
    assert events.failure is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_are_handled_on_the_event_loop(number):
    async def receive() -> int:
        received: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
        with handle_signals(received.set_result, lambda: None):
            os.kill(os.getpid(), number)
            return await asyncio.wait_for(received, 10)

    assert asyncio.run(receive()) == number


@pytest.mark.parametrize(
    ("requests", "now", "due"),
    [
        ([(signal.SIGINT, 100.0)], 100.0, signal.SIGINT),
        ([(signal.SIGINT, 100.0)], 129.9, signal.SIGINT),
        ([(signal.SIGINT, 100.0)], 130.0, signal.SIGTERM),
        ([(signal.SIGINT, 100.0)], 140.0, signal.SIGKILL),
        ([(signal.SIGTERM, 100.0)], 129.9, signal.SIGTERM),
        ([(signal.SIGTERM, 100.0)], 130.0, signal.SIGKILL),
        ([(signal.SIGINT, 100.0), (signal.SIGINT, 101.0)], 101.0, signal.SIGTERM),
        ([(signal.SIGINT, 100.0), (signal.SIGHUP, 101.0)], 104.0, signal.SIGKILL),
        ([(signal.SIGINT, 100.0), (signal.SIGINT, 101.0), (signal.SIGINT, 101.5)], 101.5, 9),
    ],
)
def test_the_signal_that_is_due(requests, now, due):
    assert due_signal(requests, now, grace=30.0) == due
