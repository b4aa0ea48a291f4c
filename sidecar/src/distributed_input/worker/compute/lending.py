"""The number of permits that a worker lends while its CPUs are idle. No locks.

A worker has one permit for each CPU, and a stream needs one to produce its next block. If a dataset
waits for storage, permits are held without use. Without lending, one CPU would produce one split at
a time, and the waits would add up. One `next` that never returns would stop all other splits.

Permits are lent in small steps while the process leaves CPUs idle, and taken back when it does not.
A pipeline that computes keeps the CPUs busy and gets none. Memory grows only with streams that
wait: each lent permit is one more block that is being produced, of about one message.

Splits may also wait for the same thing, such as the threads of a parallel map. Then more of them
produce no more rows, and only delay those that are needed first. So it is measured whether more
permits bring more rows, and they are taken back if they do not.

Python code also waits for the interpreter. If many threads wait for it, heartbeats are late too. So
no permits are lent if a thread that slept does not run at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

STUCK_SECONDS = 10.0
"""A permit that is held for longer is lent, even if the CPUs are busy."""
DELAY_SECONDS = 0.05
"""The same, if a job reads the holder's rows later than those of a task that waits."""
_TICK_SECONDS = 0.05
_IDLE_SHARE, _BUSY_SHARE = 0.75, 0.9  # of the CPUs
_TRIAL_SECONDS, _TRIAL_TASKS = 0.2, 20  # long enough to measure a rate
_GAIN = 1.15
_PAUSE_SECONDS = 5.0
_LATE_SECONDS = 0.004  # the interpreter asks a thread to let others run after 5 ms


@dataclass(frozen=True)
class CpuUse:
    """The use of this process's CPUs during a short time.

    Attributes:
        share: CPU time, as a share of the CPUs that the worker may use.
        late: seconds that a thread had to wait before it ran.
    """

    share: float
    late: float

    @property
    def is_idle(self) -> bool:
        """Return whether one more thread would find a CPU."""
        return self.share < _IDLE_SHARE and self.late < _LATE_SECONDS

    @property
    def is_busy(self) -> bool:
        """Return whether threads have to wait for each other."""
        return self.share > _BUSY_SHARE or self.late >= _LATE_SECONDS


def cpu_use(
    cpus: Callable[[], int],
    clock: Callable[[], float] = time.monotonic,
    cpu_clock: Callable[[], float] = time.process_time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[CpuUse]:
    """Yield the use of the CPUs since the last value. Each value takes a twentieth of a second.

    Args:
        cpus: returns the number of CPUs that the worker may use now.
        clock: time in seconds.
        cpu_clock: CPU time of all threads of the process, in seconds.
        sleep: waits for a number of seconds.
    """
    began, used = clock(), cpu_clock()
    while True:
        slept = clock()
        sleep(_TICK_SECONDS)
        now, now_used = clock(), cpu_clock()
        share = (now_used - used) / max(now - began, 1e-6) / cpus()
        yield CpuUse(share, now - slept - _TICK_SECONDS)
        began, used = now, now_used


@dataclass
class Trial:
    """A test whether more permits let tasks end more often.

    Attributes:
        began: time at which the number of lent permits was last changed; None: it is not tested.
        ended: number of tasks that had ended then.
        lent: number of lent permits before.
        rate: tasks that ended per second with that number; None if it is not known.
        pause_until: time before which there is no other test.
    """

    began: float | None = None
    ended: int = 0
    lent: int = 0
    rate: float | None = None
    pause_until: float = float("-inf")

    def limit(self, lent: int, ended: int, now: float) -> int | None:
        """Return the number of permits to lend at most, or None if more may help.

        Args:
            lent: number of permits that are lent.
            ended: number of tasks that have ended since the start.
            now: current time in seconds.
        """
        if now < self.pause_until:
            return self.lent
        if self.began is None:
            self._begin(lent, ended, now, None)
            return lent
        seconds, count = now - self.began, ended - self.ended
        if seconds < _TRIAL_SECONDS or (0 < count < _TRIAL_TASKS and seconds < 10 * _TRIAL_SECONDS):
            return lent
        rate = count / seconds
        if self.rate is not None and self.lent < lent and 0 < rate < _GAIN * self.rate:
            self.began, self.pause_until = None, now + _PAUSE_SECONDS
            return self.lent
        self._begin(lent, ended, now, rate)
        return None

    def _begin(self, lent: int, ended: int, now: float, rate: float | None) -> None:
        self.began, self.ended, self.lent, self.rate = now, ended, lent, rate


def lent_permits(
    lent: int, *, permits: int, held: int, waiting: int, stuck: int, use: CpuUse
) -> int:
    """Return the number of permits to lend from now on.

    Args:
        lent: number of permits that are lent.
        permits: number of permits without those.
        held: number of threads that hold a permit.
        waiting: number of threads that wait for a permit.
        stuck: number of holders for which others should not wait: see STUCK_SECONDS and
            DELAY_SECONDS.
        use: use of the CPUs since the last decision.
    """
    if use.is_busy:
        lent //= 2
    elif not waiting:
        lent = min(lent, max(lent // 2, held - permits))
    elif use.is_idle:
        lent += min(waiting, permits + lent)
    return max(lent, stuck)
