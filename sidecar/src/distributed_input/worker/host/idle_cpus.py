"""The thread that applies `idle_share` to a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable

from distributed_input.runtime import logs
from distributed_input.worker.host.cpu_times import CpuTimes, read_cpu_times
from distributed_input.worker.host.idle_share import (
    TICK_SECONDS,
    IdleShare,
    host_use,
    next_share,
)

_log = logs.get("worker.idle_cpus")
_STOP_SECONDS = 5.0  # a tick takes milliseconds, on a busy machine longer


class IdleCpus:
    """A thread that changes the worker's permits as other processes use more or fewer CPUs.

    Args:
        most: maximum number of permits.
        resize: sets the number of permits, and whether more may be lent.
        read: returns the counters of the host.
    """

    def __init__(
        self,
        most: int,
        resize: Callable[[int, bool], None],
        read: Callable[[], CpuTimes] = read_cpu_times,
    ) -> None:
        self._most, self._resize, self._read = most, resize, read
        self._share, self._last = IdleShare(), read()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="idle-cpus", daemon=True)
        resize(self._share.permits, self._share.may_lend)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def tick(self) -> None:
        """Read the host's counters, and apply the share that follows from them."""
        now = self._read()
        use = host_use(self._last, now)
        share = next_share(self._share, use, self._most)
        if share.permits != self._share.permits:
            _log.debug("permits", permits=share.permits, room=round(use.room, 2))
        self._share, self._last = share, now
        self._resize(share.permits, share.may_lend)

    def _run(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            self.tick()
