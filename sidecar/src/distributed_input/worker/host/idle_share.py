"""The number of permits of a worker that uses only CPUs that other processes leave idle.

The worker has one permit for each CPU that other processes leave idle, less a reserve. It has at
least one: without it, a trainer that needs rows would never get them. The operating system prefers
every other process to this worker (see `priority`). So a number that is too high for a moment costs
the other processes little.

The number decreases at once and increases slowly. Otherwise it would follow each step of a trainer.
It also decreases where other processes are not preferred: together they get more than they leave.

Threads that wait for a CPU (pressure stall information) are no sign that the number is too high:
those with the lowest priority wait most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from distributed_input.runtime import logs
from distributed_input.worker.host.cpu_times import CpuTimes, read_cpu_times

_log = logs.get("worker.idle_cpus")
TICK_SECONDS = 0.25
"""Time between two decisions."""
_CALM_TICKS = 4  # the CPUs must have been idle for this time before permits are added
_AVERAGED_TICKS = 2  # shorter peaks remove no permit
_RESERVE_CPUS, _RESERVE_SHARE = 0.25, 0.05  # the larger one stays unused
# Permit n is added if the room is n - _ADD, and removed if it is less than n - _REMOVE. Two limits
# prevent alternation.
_ADD, _REMOVE = 0.5, 0.9


@dataclass(frozen=True)
class HostUse:
    """The use of the host's CPUs during a short time.

    Attributes:
        room: number of CPUs that other processes left idle, less the reserve; may be negative.
        idle: number of CPUs that no process used, less the reserve.
    """

    room: float
    idle: float


def host_use(before: CpuTimes, after: CpuTimes) -> HostUse:
    """Return the use of the CPUs between two readings. The pool with the least room counts."""
    seconds = max(after.time - before.time, 1e-6)
    own = (after.own - before.own) / seconds
    rooms, idles = [], []
    for then, now in zip(before.pools, after.pools, strict=False):
        used = (now.used - then.used) / seconds
        usable = now.cpus - max(_RESERVE_CPUS, _RESERVE_SHARE * now.cpus)
        idles.append(usable - used)
        # The counters are not read at the same time, and /proc/stat counts in ticks of 10 ms.
        rooms.append(usable - max(0.0, used - own))
    return HostUse(min(rooms), min(idles))


@dataclass(frozen=True)
class IdleShare:
    """What the worker may use now.

    Attributes:
        permits: number of elements that it computes at the same time.
        may_lend: whether more permits may be lent to elements that wait, because CPUs are idle.
        rooms: `HostUse.room` of the last ticks, latest last.
    """

    permits: int = 1
    may_lend: bool = False
    rooms: tuple[float, ...] = ()


def next_share(share: IdleShare, use: HostUse, most: int) -> IdleShare:
    """Return the share for the next tick.

    Law: there are at least 1 and at most `most` permits. If the room is constant, the number of
    permits does not change any more after some ticks.

    Args:
        share: the share during the last tick.
        use: use of the CPUs during the last tick.
        most: maximum number of permits.
    """
    rooms = (*share.rooms, use.room)[-_CALM_TICKS:]
    latest = rooms[-_AVERAGED_TICKS:]
    permits = min(share.permits, _whole(sum(latest) / len(latest) + _REMOVE))
    if len(rooms) == _CALM_TICKS:
        permits = max(permits, min(_whole(min(rooms) + _ADD), 2 * share.permits))
    return IdleShare(max(1, min(most, permits)), use.idle > 0, rooms)


def _whole(cpus: float) -> int:
    return max(0, int(cpus))


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
        resize(self._share.permits, self._share.may_lend)

    def start(self) -> None:
        """Start the thread, which ends with the process."""
        threading.Thread(target=self._run, name="idle-cpus", daemon=True).start()

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
        while True:
            time.sleep(TICK_SECONDS)
            self.tick()
