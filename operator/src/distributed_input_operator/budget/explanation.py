"""Explain why an input gets fewer workers than it requests. Pure.

Users see these messages in the condition ScalingLimited, in Events and in a metric. The text
before the first semicolon changes only with the numbers. The rest names the competing input, which
changes often. An input of another namespace is not named.
"""

from __future__ import annotations

import math

from distributed_input.api.resource.policy import Budget
from distributed_input_operator.budget.claim import Claim, Grant

_MAX_PERCENT = 1e6
"""A larger difference is reported without its number."""


def explained_grant(
    claim: Claim,
    target: int,
    now: int,
    budget: str,
    cause: str,
    *,
    started: bool = True,
    starts: bool = True,
) -> Grant:
    """Return the grant with its message.

    Args:
        claim: the input's claim.
        target: workers that it gets in the end.
        now: workers that it gets for now.
        budget: name of the budget that limits the target. Not used without a `cause`.
        cause: see `cause`. Empty: the target is all that was requested.
        started: whether it may have its dispatcher for now.
        starts: whether it may have its dispatcher in the end.
    """
    if cause:
        least = "" if starts else "no dispatcher and "
        message = f"{least}{target} of {claim.requested} requested workers: budget {budget} {cause}"
        return Grant(now, target, budget, message, started)
    if now < target or started < starts:
        least = "" if started else "no dispatcher and "
        waiting = f"{least}{now} of {target} workers until other inputs' pods have terminated"
        return Grant(now, target, "", waiting, started)
    return Grant(now, target, dispatcher=started)


def cause(
    claim: Claim,
    budget: Budget,
    alone: bool,
    last: Claim | None = None,
    before: Claim | None = None,
) -> str:
    """Return what limits a claim: a clause that follows the budget's name.

    Args:
        claim: the claim that gets fewer workers than it requests.
        budget: the budget that limits it.
        alone: whether no other claim has workers of this budget.
        last: the claim that got the last worker of the budget.
        before: the last claim other than `last` that got one.
    """
    for size, what in ((claim.dispatcher, "the dispatcher"), (claim.worker_size, "one worker")):
        if any(part > limit for part, limit in zip(size, budget.limits, strict=False)):
            return f"is smaller than {what}"
    rival = before if last is claim else last
    if alone:
        return "is used up; no other input uses it"
    if rival is None:
        return "is used up; minimums and guarantees take the rest"
    # Namespaces are tenants: one does not learn the names of the inputs of another.
    same = rival.key[0] == claim.key[0]
    name = "/".join(rival.key) if same else "an input of another namespace"
    if rival.priority > claim.priority:
        return f"is used up; {name} has priority {rival.priority}"
    more = 100 * (rival.bid / claim.bid - 1) if claim.bid else math.inf
    if rival.bid and more > _MAX_PERCENT:
        return f"is used up; {name} loses more per worker"
    if rival.bid and round(more) > 0:
        return f"is used up; {name} loses {round(more)} % more per worker"
    return f"is used up; it is shared with {name}, which loses no more per worker"
