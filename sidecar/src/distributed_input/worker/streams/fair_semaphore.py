"""A fair semaphore, which limits the elements that a worker produces at the same time."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from distributed_input.worker.streams.lending import (
    STUCK_SECONDS,
    CpuUse,
    Trial,
    cpu_use,
    lent_permits,
)
from distributed_input.worker.streams.permit_queue import Need, PermitQueue, PermitRequest

_MOST_PLACES = 4


class FairSemaphore:
    """A semaphore that threads acquire in the order of `PermitQueue`.

    `threading.Semaphore` is not fair: the running thread usually acquires again what it has just
    released. With more streams than permits, some streams starved, and the trainer with them,
    because it needs rows of all streams.

    A permit stands for one CPU. A holder that waits, for example for storage, does not use it. So
    while threads wait for permits and CPUs are idle, more permits are lent; see `lending`.

    Args:
        permits: number of threads that may hold the semaphore at the same time, without those that
            hold a lent permit.
        clock: monotonic time in seconds.
    """

    def __init__(self, permits: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._permits, self._clock = permits, clock
        self._lent, self._may_lend = 0, True
        self._held: dict[PermitRequest, float] = {}  # time at which each got its permit
        self._waiting = PermitQueue()
        self._ended = 0  # number of permits that were released
        self._trial = Trial()
        self._lock = threading.Lock()
        self._busy_seconds, self._permit_seconds, self._counted_at = 0.0, 0.0, clock()
        self._lender: threading.Thread | None = None

    @contextlib.contextmanager
    def permit(self, request: PermitRequest) -> Iterator[None]:
        """Hold a permit. Each request is for one call."""
        self._acquire(request)
        try:
            yield
        finally:
            with self._lock:
                self._count_busy()
                del self._held[request]
                self._ended += 1
                self._admit()

    def add_need(self, request: PermitRequest, need: Need) -> None:
        """Record that a further stream waits for the thread of a request, if that still waits."""
        with self._lock:
            self._waiting.add_need(request, need)

    def _acquire(self, request: PermitRequest) -> None:
        with self._lock:
            if self._has_free():
                self._hold(request)
                return
            request.turn.acquire()
            self._waiting.add(request)
            if self._lender is None:
                self._lender = threading.Thread(target=self._lend, name="lender", daemon=True)
                self._lender.start()
        request.turn.acquire()  # blocks until another thread releases it

    @property
    def waiting(self) -> int:
        """Return the number of threads that wait for a permit."""
        with self._lock:
            return len(self._waiting)

    @property
    def capacity(self) -> int:
        """Return the number of threads that may hold a permit now, with those that are lent.

        At most _MOST_PLACES for each CPU: sidecars open splits for them, and each takes memory.
        """
        with self._lock:
            return min(self._permits + self._lent, _MOST_PLACES * self._permits)

    @property
    def busy_seconds(self) -> float:
        """Return the time in which permits were held, without those that were lent.

        It is at most the elapsed time multiplied by the number of permits.
        """
        with self._lock:
            self._count_busy()
            return self._busy_seconds

    @property
    def permit_seconds(self) -> float:
        """Return the number of permits, without those that were lent, summed over time."""
        with self._lock:
            self._count_busy()
            return self._permit_seconds

    @property
    def permits(self) -> int:
        """Return the number of permits, without those that are lent."""
        with self._lock:
            return self._permits

    def resize(self, permits: int, may_lend: bool) -> None:
        """Change the number of permits from the next `adjust` on. Threads keep what they hold.

        Args:
            permits: the new number, at least one.
            may_lend: whether CPUs of this host are idle. If not, permits are lent only to replace
                stuck holders.
        """
        with self._lock:
            self._count_busy()
            self._permits, self._may_lend = permits, may_lend

    def adjust(self, use: CpuUse) -> bool:
        """Set the number of lent permits. Return whether it may have to change again soon.

        Args:
            use: use of the CPUs since the last call.
        """
        with self._lock:
            now = self._clock()
            stuck = sum(now - since > STUCK_SECONDS for since in self._held.values())
            if not self._may_lend:
                use = CpuUse(1.0, use.late)
            wanted = lent_permits(
                self._lent,
                permits=self._permits,
                held=len(self._held),
                waiting=len(self._waiting),
                stuck=stuck,
                use=use,
            )
            if wanted > self._lent and not stuck:
                most = self._trial.limit(self._lent, self._ended, now)
                wanted = wanted if most is None else min(wanted, most)
            self._lent = wanted
            self._admit()
            again = bool(self._waiting or self._lent)
            if not again:
                self._lender = None
            return again

    def _lend(self) -> None:
        for use in cpu_use(lambda: self.permits):
            if not self.adjust(use):
                return

    # The caller of the methods below holds the lock.

    def _has_free(self) -> bool:
        return len(self._held) < self._permits + self._lent

    def _admit(self) -> None:
        while self._has_free() and (request := self._waiting.pop()) is not None:
            self._hold(request)
            request.turn.release()

    def _hold(self, request: PermitRequest) -> None:
        self._count_busy()
        self._held[request] = self._clock()

    def _count_busy(self) -> None:
        now = self._clock()
        self._busy_seconds += min(len(self._held), self._permits) * (now - self._counted_at)
        self._permit_seconds += self._permits * (now - self._counted_at)
        self._counted_at = now
