"""What to do about a part that ended, and about a trainer that should: pure, `now` passed in."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

EXIT_CONFIG = 2
"""The parts' exit status for a configuration that cannot work."""

KILL_AFTER = 10.0
URGED_KILL_AFTER = 3.0


@dataclass(frozen=True)
class Limits:
    """How patient the runner is. Times in seconds."""

    first_delay: float = 0.25
    longest_delay: float = 8.0
    crashes: int = 5
    within: float = 60.0
    unready: int = 3
    """Lives in a row that ended before the part was ready."""


@dataclass(frozen=True)
class History:
    """What a part went through: the times of its crashes, oldest first."""

    crashes: tuple[float, ...] = ()
    unready: int = 0
    ever_ready: bool = False


@dataclass(frozen=True)
class Restart:
    """Start the part again after `delay` seconds."""

    delay: float


@dataclass(frozen=True)
class GiveUp:
    """Stop everything, for `reason`."""

    reason: str


def after_crash(
    history: History, now: float, status: int, was_ready: bool, limits: Limits
) -> tuple[History, Restart | GiveUp]:
    """The next step for a part that ended with `status` (-n: signal n) at `now`.

    The delay doubles with each crash within `limits.within`, so that it is short again after
    a quiet time.
    """
    recent = (*(at for at in history.crashes if now - at < limits.within), now)
    ever_ready = history.ever_ready or was_ready
    history = replace(
        history,
        crashes=recent,
        unready=0 if was_ready else history.unready + 1,
        ever_ready=ever_ready,
    )
    if status == EXIT_CONFIG and not ever_ready:
        return history, GiveUp("it cannot start with this configuration")
    if history.unready >= limits.unready:
        return history, GiveUp(f"it ended {history.unready} times in a row before it was ready")
    if len(recent) > limits.crashes:
        return history, GiveUp(f"it crashed {len(recent)} times within {limits.within:g} s")
    delay = min(limits.longest_delay, limits.first_delay * 2.0 ** (len(recent) - 1))
    return history, Restart(delay)


@dataclass(frozen=True)
class Ending:
    """Why and since when the trainers are being ended."""

    signal: int
    """The first signal that they get."""
    since: float
    urges: int = 0
    """How often the user has pressed Ctrl-C since, or sent another signal."""
    urged: float = 0.0
    """When they last did."""


def urged(ending: Ending, now: float) -> Ending:
    """`ending`, asked for once more."""
    return replace(ending, urges=ending.urges + 1, urged=now)


def signal_due(ending: Ending, now: float, grace: float) -> int:
    """The signal that the trainers should have had last by `now`.

    `ending.signal` first; SIGTERM once `grace` is over, and SIGKILL `KILL_AFTER` behind it (one
    `grace` behind, where SIGTERM was the first). An urge is SIGTERM at once, SIGKILL
    `URGED_KILL_AFTER` later; the second urge is SIGKILL.
    """
    if ending.urges >= 2:
        return signal.SIGKILL
    if ending.urges == 1:
        overdue = now - ending.urged >= URGED_KILL_AFTER
        return signal.SIGKILL if overdue else signal.SIGTERM
    elapsed = now - ending.since
    if ending.signal == signal.SIGTERM:
        return signal.SIGKILL if elapsed >= grace else signal.SIGTERM
    if elapsed >= grace + KILL_AFTER:
        return signal.SIGKILL
    return signal.SIGTERM if elapsed >= grace else ending.signal
