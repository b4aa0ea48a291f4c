"""Divide the cluster's workers among inputs that together request too many.

Pure and stateless: what inputs have is read from the cluster, so a restarted operator decides as
the previous one did.

    value of input i's w-th worker = bid * (1 - (w - 1) / needed) ^ SHARING    bid = cost / needed

A bid is the stall cost that one worker saves: an input with w of the d workers that it needs stalls
for 1 - w/d of its time. The second factor is close to 1 until an input has nearly all that it
needs. It lets equal bids share, and it keeps the result continuous. With bids alone, two inputs
that are nearly equal would swap all workers at each small change.

Dispatchers come first: without its dispatcher, an input gets no workers. Workers are granted in
three rounds, as far as every budget of the input has room: minimums, then what budgets guarantee,
then the rest. Each round goes by priority, then by value.

Users see the messages of grants in the condition ScalingLimited, in Events and in a metric. The
text before the first semicolon changes only with the numbers. The rest names the competing input,
which changes often. An input of another namespace is not named.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from distributed_input.api.resource.policy import UNLIMITED, Amount, Budget
from distributed_input_operator.budget.claim import (
    Claim,
    Grant,
    InputKey,
    dispatcher_amounts,
    present_amounts,
    total_amounts,
)

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

    Without a `cause`, the target is all that was requested. `started` and `starts`: whether the
    input may have its dispatcher for now, and in the end.
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

    `alone`: no other claim has workers of this budget. `last` and `before`: the claim that got its
    last worker, and the last other one.
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


SHARING = 0.25
"""Exponent: the closer to 0, the more the highest bid gets. At 1/4, a bid twice as high stalls a
sixteenth as much, and two such inputs together cost 6 % more than if the higher got all."""
KEEPING = 1.1
"""Factor on the value of a worker that exists, so that a small difference moves no worker."""


def allocate(budgets: Mapping[str, Budget], claims: Iterable[Claim]) -> dict[InputKey, Grant]:
    """Return the workers of all inputs.

    The result does not depend on the order of claims. Once the grants are applied, the result is
    the same again. Targets exceed no budget. Grants for now exceed no budget that was kept before,
    while pods still terminate.
    """
    ordered = sorted(claims, key=lambda one: one.key)
    scarce = _scarce(budgets, ordered)
    rivals = [one for one in ordered if not scarce.isdisjoint(one.budgets)] if scarce else []
    bidders, last = _divide(scarce, budgets, rivals)
    winners = Counter(name for one in bidders if one.granted for name in one.claim.budgets)
    targets = {one.key: one.requested for one in ordered}
    targets |= {one.claim.key: one.granted for one in bidders}
    refused = {one.claim.key for one in bidders if one.refused}
    now, waiting = _grants_for_now(budgets, ordered, targets, refused)
    blocked = {one.claim.key: one.blocked for one in bidders}
    grants = {}
    for one in ordered:
        target, name = targets[one.key], blocked.get(one.key, "")
        why = ""
        starts = one.key not in refused
        if target < one.requested or not starts:
            alone = winners[name] == (target > 0)
            why = cause(one, budgets[name], alone, *last.get(name, ()))
        started = starts and one.key not in waiting
        grants[one.key] = explained_grant(
            one, target, now[one.key], name, why, started=started, starts=starts
        )
    return grants


def _scarce(budgets: Mapping[str, Budget], claims: list[Claim]) -> set[str]:
    """Return the names of the budgets that cannot grant all that is requested."""
    requested = total_amounts(budgets, ((one, one.requested) for one in claims))
    requested = dispatcher_amounts(requested, claims)
    return {
        name
        for name, amount in requested.items()
        if any(part > limit for part, limit in zip(amount, budgets[name].limits, strict=True))
    }


_Room = Mapping[str, Sequence[tuple[int, list[int]]]]
"""By budget: the index of a resource in an Amount, and what is left of it, in a list of one."""


class _Bidder:
    """A claim during the division, with the limits that can matter to it."""

    __slots__ = (
        "bid",
        "blocked",
        "claim",
        "granted",
        "guarantees",
        "limits",
        "refused",
        "room",
        "useful",
    )

    def __init__(self, claim: Claim, room: _Room, guaranteed: _Room) -> None:
        self.claim, self.granted, self.blocked, self.refused = claim, 0, "", False
        self.room = room
        self.useful, self.bid = claim.useful, claim.bid
        self.limits = _parts(claim.budgets, claim.worker_size, room)
        self.guarantees = _parts(claim.budgets, claim.worker_size, guaranteed)

    def start(self) -> None:
        """Take what the dispatcher uses. Without room for it, refuse all workers, too."""
        parts = _parts(self.claim.budgets, self.claim.dispatcher, self.room)
        for rest, part, name in parts:
            if rest[0] < part:
                self.blocked, self.refused = name, True
                return
        for rest, part, _ in parts:
            rest[0] -= part

    def take(self, count: int) -> int:
        """Take up to `count` workers, as far as every budget has room. Return the number taken."""
        if self.refused:
            return 0
        for rest, part, name in self.limits:
            if rest[0] < part * count:
                self.blocked, count = name, max(0, rest[0] // part)
        if count:
            for rest, part, _ in self.limits:
                rest[0] -= part * count
            for rest, part, _ in self.guarantees:
                rest[0] -= part * count
        self.granted += count
        return count

    def is_guaranteed(self) -> bool:
        """Return whether one of its budgets guarantees one more worker, in every resource."""
        name, kept = "", False
        for rest, part, of in self.guarantees:
            if of != name:
                if kept:
                    return True
                name, kept = of, True
            kept = kept and part <= rest[0]
        return kept

    def rank(self) -> tuple[float, float]:
        """Return the sort key of its next worker. A worker that saves no stall comes last."""
        if self.granted >= self.useful:
            return (math.inf, 0.0)
        value = self.bid * (1 - self.granted / self.useful) ** SHARING
        if self.granted < self.claim.replicas:
            value *= KEEPING
        return (-self.claim.priority, -value)

    def order(self) -> tuple[int, float, InputKey]:
        """Return the sort key of the claim: by priority, then by bid."""
        return (-self.claim.priority, -self.bid, self.claim.key)


_LastWinners = tuple[Claim, Claim | None]
"""The claim that got the last worker of a budget by value, and the last other one before it."""


def _parts(budgets: Iterable[str], size: Amount, room: _Room) -> list[tuple[list[int], int, str]]:
    return [
        (rest, size[at], name)
        for name in budgets
        for at, rest in room.get(name, ())
        if at < len(size) and size[at]
    ]


def _divide(
    scarce: set[str], budgets: Mapping[str, Budget], claims: list[Claim]
) -> tuple[list[_Bidder], dict[str, _LastWinners]]:
    """Divide the scarce budgets among the claims that count in them."""
    room = {name: _finite(budgets[name].limits, UNLIMITED) for name in scarce}
    guaranteed = {name: _finite(one.guaranteed, 0) for name, one in budgets.items()}
    bidders = [_Bidder(one, room, guaranteed) for one in claims]
    ordered = sorted(bidders, key=_Bidder.order)
    for one in sorted(ordered, key=lambda one: not one.claim.started):
        one.start()
    for one in ordered:
        one.take(min(one.claim.replicas, one.claim.minimum, one.claim.requested))
    for one in ordered:
        if not one.blocked:
            one.take(max(0, min(one.claim.minimum, one.claim.requested) - one.granted))
    _grant_by_value([one for one in bidders if one.is_guaranteed()], guaranteed_only=True)
    return bidders, _grant_by_value(bidders, guaranteed_only=False)


def _finite(amount: Amount, absent: int) -> list[tuple[int, list[int]]]:
    return [(at, [part]) for at, part in enumerate(amount) if part != absent]


def _grant_by_value(bidders: list[_Bidder], *, guaranteed_only: bool) -> dict[str, _LastWinners]:
    """Grant one worker after the other, each to the bidder with the highest value."""
    last: dict[str, _LastWinners] = {}
    heap = [
        (*one.rank(), at)
        for at, one in enumerate(bidders)
        if one.granted < one.claim.requested and not one.blocked
    ]
    heapq.heapify(heap)
    while heap:
        at = heap[0][-1]
        one = bidders[at]
        if (guaranteed_only and not one.is_guaranteed()) or not one.take(1):
            heapq.heappop(heap)
            continue
        for name in one.claim.budgets:
            if (known := last.get(name)) is None or known[0] is not one.claim:
                last[name] = (one.claim, known[0] if known else None)
        if one.granted < one.claim.requested:
            heapq.heapreplace(heap, (*one.rank(), at))
        else:
            heapq.heappop(heap)
    return last


def _grants_for_now(
    budgets: Mapping[str, Budget],
    claims: list[Claim],
    targets: Mapping[InputKey, int],
    refused: Collection[InputKey],
) -> tuple[dict[InputKey, int], set[InputKey]]:
    """Return what the claims get for now: fewer at once, more only as pods of others are gone.

    Returns:
        The workers of each claim, and the claims whose dispatcher cannot start yet.
    """
    now = {one.key: min(targets[one.key], one.replicas) for one in claims}
    rising = [
        one
        for one in claims
        if targets[one.key] > one.replicas or not (one.started or one.key in refused)
    ]
    waiting: set[InputKey] = set()
    if not rising:
        return now, waiting
    used = present_amounts(budgets, claims)
    free = {
        name: [
            (at, [limit - used[name][at]])
            for at, limit in enumerate(one.limits)
            if limit != UNLIMITED
        ]
        for name, one in budgets.items()
    }
    for one in sorted((_Bidder(one, free, {}) for one in rising), key=_Bidder.order):
        claim = one.claim
        if not claim.started:
            one.start()
        if one.refused:
            waiting.add(claim.key)
        now[claim.key] += one.take(targets[claim.key] - now[claim.key])
    return now, waiting
