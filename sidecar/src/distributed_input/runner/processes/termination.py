"""Which signal ends the trainers, and when: pure, with `now` as an argument."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

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


def escalate(termination: Termination, now: float) -> Termination:
    """Return `termination` after one more signal from the user."""
    return replace(termination, escalations=termination.escalations + 1, escalated=now)


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
