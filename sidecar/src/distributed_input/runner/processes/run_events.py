"""Events that end a run: signals, and processes that the runner gave up on."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from distributed_input.runner.processes.supervised_process import ProcessFailedError
from distributed_input.runner.processes.termination import Termination, escalate

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class RunEvents:
    """The events so far. Use it on the event loop's thread only."""

    termination: Termination | None = None
    """Set when the trainers must end."""
    failure: ProcessFailedError | None = None
    """The first process that the runner gave up on."""
    interrupted: int = 0
    """The first signal that the runner got; 0: none."""
    closed: bool = False
    """The run is shutting down. Later failures are ignored."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at every change."""

    def fail(self, error: ProcessFailedError) -> None:
        """Record that the runner gave up on a process."""
        if self.failure is None and not self.closed:
            self.failure = error
            self.changed.set()

    def terminate(self, number: int) -> None:
        """Request the end of the trainers, with signal `number` first."""
        if self.termination is None:
            self.termination = Termination(number, time.monotonic())
            self.changed.set()

    def interrupt(self, number: int) -> None:
        """Record that the runner got signal `number`."""
        self.interrupted = self.interrupted or number
        if self.termination is None:
            self.terminate(number)
        else:
            self.termination = escalate(self.termination, time.monotonic())
            self.changed.set()


@contextlib.contextmanager
def handle_signals(
    on_interrupt: Callable[[int], None], on_suspend: Callable[[], None]
) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP with `on_interrupt`, and Ctrl-Z with `on_suspend`."""
    loop = asyncio.get_running_loop()
    handlers = [(number, lambda n=number: on_interrupt(n)) for number in _ENDING_SIGNALS]
    # Signals that are ignored, for example by nohup, stay ignored.
    caught = [
        (number, handler)
        for number, handler in [*handlers, (signal.SIGTSTP, on_suspend)]
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number, handler in caught:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, _ in caught:
            loop.remove_signal_handler(number)
