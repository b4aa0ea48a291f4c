"""Events that end a run, and the signals that its trainers then get."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from distributed_input.runner.processes.supervised_process import ProcessFailedError

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KILL_AFTER = 10.0
"""Seconds from the end of the grace period to SIGKILL."""
ESCALATED_KILL_AFTER = 3.0
"""Seconds from the user's second signal to SIGKILL."""


@dataclass(frozen=True)
class Termination:
    """A request to end the trainers."""

    signal: int
    """The first signal that the trainers get."""
    since: float
    escalations: int = 0
    """Number of further signals from the user."""
    escalated: float = 0.0
    """Time of the last of them."""


def due_signal(termination: Termination, now: float, grace: float) -> int:
    """Return the last signal that the trainers should have got by `now`.

    First `termination.signal`, then SIGTERM after `grace` seconds, then SIGKILL after KILL_AFTER
    seconds more. If the first signal is SIGTERM, SIGKILL follows after `grace` seconds.

    After one escalation: SIGTERM at once, and SIGKILL after ESCALATED_KILL_AFTER seconds. After
    the second: SIGKILL.
    """
    if termination.escalations >= 2:
        return signal.SIGKILL
    if termination.escalations == 1:
        overdue = now - termination.escalated >= ESCALATED_KILL_AFTER
        return signal.SIGKILL if overdue else signal.SIGTERM
    elapsed = now - termination.since
    if termination.signal == signal.SIGTERM:
        return signal.SIGKILL if elapsed >= grace else signal.SIGTERM
    if elapsed >= grace + KILL_AFTER:
        return signal.SIGKILL
    return signal.SIGTERM if elapsed >= grace else termination.signal


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
            self.termination = replace(
                self.termination,
                escalations=self.termination.escalations + 1,
                escalated=time.monotonic(),
            )
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
