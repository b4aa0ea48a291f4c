"""How many inputs get a new pod template of the operator at the same time. Pure.

Another release or other settings of the operator may change the pods of all inputs. A limited
number of inputs may change at the same time: each of them holds a slot. An input gives its slot
back when all its pods are replaced. If its new pods fail, it keeps the slot. So a bad template soon
holds all slots, and no other input gets it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass


class RolloutState(enum.Enum):
    """Whether an input's pods have the operator's template."""

    SETTLED = "settled"
    """They need no other template."""
    WAITING = "waiting"
    """They have an earlier template, and could get the new one now."""
    BUSY = "busy"
    """They have an earlier template, and another change replaces them at the moment."""
    ROLLING = "rolling"
    """The operator replaces them."""
    FAILING = "failing"
    """The operator replaces them, and the new pods fail."""
    UPDATED = "updated"
    """The operator has replaced them."""


class Turn(enum.Enum):
    """Whether an input may get the operator's template."""

    START = "start"
    WAIT = "wait"
    FOLLOW = "follow"
    """Another change replaces its pods first."""
    STOPPED = "stopped"
    """It waits, and all inputs that hold a slot fail."""


Counts = Mapping[RolloutState, int]
"""Number of inputs by state."""


@dataclass(frozen=True)
class PaceLimit:
    """The maximum number of inputs that hold a slot: a number, or a percentage of all inputs."""

    value: int
    is_percentage: bool = True

    def inputs(self, total: int) -> int:
        """Return the maximum among `total` inputs, at least 1."""
        return max(1, total * self.value // 100 if self.is_percentage else self.value)


DEFAULT_LIMIT = "10%"


def parse_limit(text: str) -> PaceLimit:
    """Return the limit from "20" or "10%". Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})(%?)", text)
    if not match or (match[2] and int(match[1]) > 100):
        raise ValueError(f"{text!r} is not a limit: use a number of inputs, or 1% to 100%")
    return PaceLimit(int(match[1]), bool(match[2]))


def slots(counts: Counts, limit: PaceLimit) -> int:
    """Return the number of slots.

    The first input goes alone. Each input that is updated allows one more, up to the limit.
    """
    return min(limit.inputs(sum(counts.values())), max(1, counts.get(RolloutState.UPDATED, 0)))


def free_slots(counts: Counts, limit: PaceLimit) -> int:
    """Return the number of inputs that may start now."""
    taken = counts.get(RolloutState.ROLLING, 0) + counts.get(RolloutState.FAILING, 0)
    return max(0, slots(counts, limit) - taken)


def is_stopped(counts: Counts, limit: PaceLimit) -> bool:
    """Return whether failing inputs hold all slots."""
    return counts.get(RolloutState.FAILING, 0) >= slots(counts, limit)
