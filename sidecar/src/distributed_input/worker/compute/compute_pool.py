"""The threads that compute elements: as many at the same time as the worker has CPUs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from distributed_input.runtime import logs
from distributed_input.worker.compute.lending import (
    DELAY_SECONDS,
    STUCK_SECONDS,
    CpuUse,
    Trial,
    cpu_use,
    lent_permits,
)
from distributed_input.worker.compute.task_queue import ComputeTask, Need, TaskQueue

_log = logs.get("worker.compute")
_MOST_PLACES = 4
_IDLE_SECONDS = 30.0  # after which a thread without work ends


class ComputePool:
    """Runs tasks in the order of `TaskQueue`. Thread-safe.

    A permit stands for one CPU, and each running task holds one. A task that waits, for example for
    storage, does not use its CPU. So while tasks wait for permits and CPUs are idle, more permits
    are lent; see `lending`.

    A thread that ends a task takes the next one itself: a switch of threads for each element would
    cost more than a small element.

    Args:
        permits: number of tasks that may run at the same time, without those that hold a lent
            permit.
        clock: monotonic time in seconds.
    """

    def __init__(self, permits: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._permits, self._clock = permits, clock
        self._lent, self._may_lend = 0, True
        self._held: dict[ComputeTask, float] = {}  # time at which each began
        self._waiting = TaskQueue()
        self._ended = 0  # number of tasks
        self._trial = Trial()
        self._lock = threading.Lock()
        self._begun: deque[ComputeTask] = deque()  # they have a permit, but no thread yet
        self._work = threading.Condition(self._lock)
        self._idle_threads = 0
        self._busy_seconds, self._permit_seconds, self._counted_at = 0.0, 0.0, clock()
        self._lender: threading.Thread | None = None

    def submit(self, tasks: Iterable[ComputeTask]) -> None:
        """Run tasks in other threads, each when it has a permit."""
        with self._lock:
            for task in tasks:
                self._waiting.add(task)
            self._begin_waiting()

    def add_need(self, task: ComputeTask, need: Need) -> None:
        """Record that a further stream waits for a task, if that has not begun."""
        with self._lock:
            self._waiting.add_need(task, need)

    def cancel(self, task: ComputeTask) -> None:
        """Do not run a task, if it has not begun."""
        with self._lock:
            self._waiting.remove(task)

    @property
    def waiting(self) -> int:
        """Return the number of tasks that wait for a permit."""
        with self._lock:
            return len(self._waiting)

    @property
    def wanted(self) -> int:
        """Return the number of tasks that run or wait for a permit."""
        with self._lock:
            return len(self._held) + len(self._waiting)

    @property
    def capacity(self) -> int:
        """Return the number of tasks that may run now, with those whose permits are lent.

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
        """Change the number of permits from the next `adjust` on. Tasks keep what they hold.

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
            stuck = sum(self._is_stuck(task, now - since) for task, since in self._held.items())
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
            self._begin_waiting()
            again = bool(self._waiting or self._lent)
            if not again:
                self._lender = None
            return again

    def _lend(self) -> None:
        for use in cpu_use(lambda: self.permits):
            if not self.adjust(use):
                return

    def _run(self) -> None:
        """Run tasks until there are none for a while. The loop of a thread."""
        task = self._next_begun()
        while task is not None:
            following: Iterable[ComputeTask] = ()
            try:
                following = task.run()
            except Exception:  # noqa: BLE001 - a bug; others need the permit
                _log.exception("a task failed")
            task = self._end(task, following) or self._next_begun()

    def _next_begun(self) -> ComputeTask | None:
        """Wait for a task that has a permit. None if there is none for a while."""
        with self._lock:
            while not self._begun:
                self._idle_threads += 1
                is_woken = self._work.wait(_IDLE_SECONDS)
                self._idle_threads -= 1
                if not is_woken and not self._begun:
                    return None
            return self._begun.popleft()

    def _end(self, task: ComputeTask, following: Iterable[ComputeTask]) -> ComputeTask | None:
        """Release the permit of a task. Return the task that this thread runs next, if any."""
        with self._lock:
            for one in following:
                self._waiting.add(one)
            self._count_busy()
            del self._held[task]
            self._ended += 1
            chosen = self._waiting.pop() if self._has_free() else None
            if chosen is not None:
                self._hold(chosen)
            self._begin_waiting()
            return chosen

    # The caller of the methods below holds the lock.

    def _is_stuck(self, task: ComputeTask, seconds: float) -> bool:
        """Return whether others should not wait for a task that has held its permit for so long."""
        if seconds > STUCK_SECONDS:
            return True
        return seconds > DELAY_SECONDS and self._waiting.delays(task)

    def _has_free(self) -> bool:
        return len(self._held) < self._permits + self._lent

    def _begin_waiting(self) -> None:
        """Begin the tasks for which there are permits."""
        while self._has_free() and (task := self._waiting.pop()) is not None:
            self._hold(task)
            self._begun.append(task)
            if self._idle_threads >= len(self._begun):
                self._work.notify()
            else:
                threading.Thread(target=self._run, name="compute", daemon=True).start()
        if self._waiting and self._lender is None:
            self._lender = threading.Thread(target=self._lend, name="lender", daemon=True)
            self._lender.start()

    def _hold(self, task: ComputeTask) -> None:
        self._count_busy()
        self._held[task] = self._clock()

    def _count_busy(self) -> None:
        now = self._clock()
        self._busy_seconds += min(len(self._held), self._permits) * (now - self._counted_at)
        self._permit_seconds += self._permits * (now - self._counted_at)
        self._counted_at = now
