"""What happens to a run from outside while it runs: signals, and parts that are given up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from distributed_input.runner.processes import policy
from distributed_input.runner.processes.supervise import PartFailedError

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Events:
    """What has happened so far. On the event loop's thread only."""

    ending: policy.Ending | None = None
    """Set once the trainers are to end."""
    failure: PartFailedError | None = None
    """The first part that was given up."""
    interrupted: int = 0
    """The first signal that asked the runner to end; 0: none."""
    closed: bool = False
    """The run is being taken down: what fails now is no failure."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at every change."""

    def fail(self, error: PartFailedError) -> None:
        """A part was given up."""
        if self.failure is None and not self.closed:
            self.failure = error
            self.news.set()

    def end(self, number: int) -> None:
        """Ask the trainers to end, with signal `number` first."""
        if self.ending is None:
            self.ending = policy.Ending(number, time.monotonic())
            self.news.set()

    def interrupt(self, number: int) -> None:
        """The runner got signal `number`."""
        self.interrupted = self.interrupted or number
        if self.ending is None:
            self.end(number)
        else:
            self.ending = policy.urged(self.ending, time.monotonic())
            self.news.set()


@contextlib.contextmanager
def handling(interrupted: Callable[[int], None], suspended: Callable[[], None]) -> Iterator[None]:
    """Have the signals that end a process call `interrupted`, and Ctrl-Z call `suspended`."""
    loop = asyncio.get_running_loop()
    handlers = [(number, lambda n=number: interrupted(n)) for number in _ENDING_SIGNALS]
    # What nohup and the like have set to be ignored stays so.
    caught = [
        (number, handler)
        for number, handler in [*handlers, (signal.SIGTSTP, suspended)]
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number, handler in caught:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, _ in caught:
            loop.remove_signal_handler(number)
