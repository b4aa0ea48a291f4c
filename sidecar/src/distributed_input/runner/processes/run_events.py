"""Events that end a run, and the signals that its trainers then get."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from distributed_input.runner.processes.supervised_process import ProcessFailedError

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KILL_AFTER = 10.0
"""Seconds from the end of the grace period to SIGKILL."""
ESCALATED_KILL_AFTER = 3.0
"""Seconds from the user's second signal to SIGKILL."""


def due_signal(requests: Sequence[tuple[int, float]], now: float, grace: float) -> int:
    """Return the last signal that the trainers should have got by `now`.

    The first request is a signal and its time: that signal, then SIGTERM after `grace` seconds,
    then SIGKILL after KILL_AFTER seconds more. If it is SIGTERM, SIGKILL follows after `grace`
    seconds. At the second request, whatever its signal: SIGTERM at once, and SIGKILL after
    ESCALATED_KILL_AFTER seconds. At the third: SIGKILL.
    """
    (first, since), *further = requests
    if len(further) > 1:
        return signal.SIGKILL
    if further:
        overdue = now - further[0][1] >= ESCALATED_KILL_AFTER
        return signal.SIGKILL if overdue else signal.SIGTERM
    kill_after = grace if first == signal.SIGTERM else grace + KILL_AFTER
    if now - since >= kill_after:
        return signal.SIGKILL
    return signal.SIGTERM if now - since >= grace else first


@dataclass
class RunEvents:
    """The events so far. Use it on the event loop's thread only."""

    requests: list[tuple[int, float]] = field(default_factory=list)
    """Signals that request the end of the trainers, each with its time; see `due_signal`."""
    failure: ProcessFailedError | None = None
    """The first process that the runner gave up on."""
    interrupted: bool = False
    """The runner got a signal."""
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
        """Request the end of the trainers, with signal `number` first, or sooner than so far."""
        self.requests.append((number, time.monotonic()))
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
