"""Who gets the cluster's workers where not all can have what they want. Pure and stateless:
what is held is read from the cluster, so a restarted operator decides as the one before.

    value of input i's w-th worker = bid · (1 - (w - 1) / needed) ^ SHARING    bid = cost / needed

A bid is the stall cost that one worker saves: an input with w of the d workers that it needs stalls
for 1 - w/d of its time. The factor behind it, close to 1 until an input has nearly all that it
needs, lets equal bids share and keeps the answer continuous: with bids alone, two inputs that
are nearly equal would swap everything whenever one of them changes a little.

Workers go in this order, each time by priority and then by value, as far as every budget of their
input has room: minimums, then what budgets guarantee to their inputs, then what is left.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from distributed_input.api.resource.policy import NOTHING, UNLIMITED, Amount, Budget

Key = tuple[str, str]
"""Namespace and name of an input."""

SHARING = 0.25
"""The nearer to 0, the more goes to the highest bid. At 1/4 a bid twice as high stalls a sixteenth
as much, and two such inputs together cost 6 % more than if the higher took all."""
HOLDING = 1.1
"""A worker that is there is worth so much more to its input: a small difference moves nobody."""
_MOST_TOLD = 1e6
"""Per cent: beyond, the number says nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one input asks for, and what it has."""

    key: Key
    wanted: int
    least: int = 0
    """Never reclaimed for anyone's sake."""
    held: int = 0
    """Workers that its Deployment asks for."""
    occupied: int = 0
    """Worker pods that there are, those on their way out included."""
    excess: Amount = NOTHING
    """What these take beyond `worker` each: some were larger when they were made."""
    cost: float = 1.0
    """What it costs while all its trainers wait, in any unit that all claims share."""
    priority: int = 0
    worker: Amount = (1, 0, 0)
    """What one worker takes of a budget."""
    budgets: tuple[str, ...] = ()
    """Those that it counts in."""
    needed: int | None = None
    """Workers at which nobody stalls: more than are wanted where these may only come step by step,
    fewer where some are kept for later; None: those that are wanted."""

    @property
    def bid(self) -> float:
        """Stall cost that one worker saves."""
        return self.cost / self.uses if self.uses else 0.0

    @property
    def uses(self) -> int:
        """Workers that save stall, if it had them."""
        return self.wanted if self.needed is None else self.needed

    @property
    def standing(self) -> int:
        """Workers that there are or are about to be."""
        return max(self.held, self.occupied)


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a claim."""

    workers: int
    """For now."""
    target: int
    """Once those have left who give way."""
    budget: str = ""
    """The one that is spent; empty where all that was wanted is granted."""
    message: str = ""
    """Why it is fewer than was wanted, in one sentence."""


def allocate(budgets: Mapping[str, Budget], claims: Iterable[Claim]) -> dict[Key, Grant]:
    """Workers for all inputs: the same for the same claims in any order, and once what is granted
    is held, the same again.

    No budget is exceeded by targets, nor, where it was kept before, by what is granted for now
    while pods still leave.
    """
    ordered = sorted(claims, key=lambda one: one.key)
    scarce = _scarce(budgets, ordered)
    rivals = [one for one in ordered if not scarce.isdisjoint(one.budgets)] if scarce else []
    bidders, last = _deal(scarce, budgets, rivals)
    takers = Counter(name for one in bidders if one.granted for name in one.claim.budgets)
    targets = {one.key: one.wanted for one in ordered}
    targets |= {one.claim.key: one.granted for one in bidders}
    now = _for_now(budgets, ordered, targets)
    blocked = {one.claim.key: one.blocked for one in bidders}
    grants = {}
    for one in ordered:
        target, name = targets[one.key], blocked.get(one.key, "")
        why = ""
        if target < one.wanted:
            alone = takers[name] == (target > 0)
            why = _why(one, budgets[name], alone, *last.get(name, ()))
        grants[one.key] = _grant(one, target, now[one.key], name, why)
    return grants


def total(budgets: Iterable[str], parts: Iterable[tuple[Claim, int]]) -> dict[str, Amount]:
    """What so many workers of each claim take of each budget."""
    sums = dict.fromkeys(budgets, NOTHING)
    for claim, count in parts:
        if count:
            workers, cpu, memory = claim.worker
            for name in claim.budgets:
                used = sums[name]
                sums[name] = (
                    used[0] + count * workers,
                    used[1] + count * cpu,
                    used[2] + count * memory,
                )
    return sums


def standing(budgets: Iterable[str], claims: Iterable[Claim]) -> dict[str, Amount]:
    """What all that there is, or is about to be, takes of each budget."""
    known = list(claims)
    sums = total(budgets, ((one, one.standing) for one in known))
    for one in known:
        if one.excess != NOTHING:
            for name in one.budgets:
                sums[name] = _plus(sums[name], one.excess)
    return sums


def _plus(one: Amount, other: Amount) -> Amount:
    return (one[0] + other[0], one[1] + other[1], one[2] + other[2])


def _scarce(budgets: Mapping[str, Budget], claims: list[Claim]) -> set[str]:
    """Budgets that cannot give all that is wanted."""
    wanted = total(budgets, ((one, one.wanted) for one in claims))
    return {
        name
        for name, amount in wanted.items()
        if any(want > limit for want, limit in zip(amount, budgets[name].limits, strict=True))
    }


class _Bidder:
    """A claim while it is dealt with: only the limits that can matter to it, ready to be used."""

    __slots__ = ("bid", "blocked", "claim", "granted", "limits", "promises", "uses")

    def __init__(self, claim: Claim, room: _Room, promised: _Room) -> None:
        self.claim, self.granted, self.blocked = claim, 0, ""
        self.uses, self.bid = claim.uses, claim.bid
        self.limits = _parts(claim, room)
        self.promises = _parts(claim, promised)

    def take(self, count: int) -> int:
        """As many workers, up to `count`, as every budget has room for."""
        for rest, part, name in self.limits:
            if rest[0] < part * count:
                self.blocked, count = name, max(0, rest[0] // part)
        if count:
            for rest, part, _ in self.limits:
                rest[0] -= part * count
            for rest, part, _ in self.promises:
                rest[0] -= part * count
        self.granted += count
        return count

    def promised(self) -> bool:
        """Whether one of its budgets guarantees it one more, of all that it guarantees."""
        name, kept = "", False
        for rest, part, of in self.promises:
            if of != name:
                if kept:
                    return True
                name, kept = of, True
            kept = kept and part <= rest[0]
        return kept

    def next(self) -> tuple[float, float]:
        """Where its next worker stands among all others; what saves no stall comes last."""
        if self.granted >= self.uses:
            return (math.inf, 0.0)
        worth = self.bid * (1 - self.granted / self.uses) ** SHARING
        if self.granted < self.claim.held:
            worth *= HOLDING
        return (-self.claim.priority, -worth)

    def order(self) -> tuple[int, float, Key]:
        """Before all that have a lower priority or bid."""
        return (-self.claim.priority, -self.bid, self.claim.key)


_Last = tuple[Claim, Claim | None]
"""Who got the last worker of a budget that went by value, and who the last before that."""
_Room = Mapping[str, Sequence[tuple[int, list[int]]]]
"""By budget: which resource (its place in an Amount), and how much is left, in a list of one."""


def _parts(claim: Claim, room: _Room) -> list[tuple[list[int], int, str]]:
    return [
        (rest, claim.worker[at], name)
        for name in claim.budgets
        for at, rest in room.get(name, ())
        if claim.worker[at]
    ]


def _deal(
    scarce: set[str], budgets: Mapping[str, Budget], claims: list[Claim]
) -> tuple[list[_Bidder], dict[str, _Last]]:
    """Deal out what is scarce."""
    room = {name: _known(budgets[name].limits, UNLIMITED) for name in scarce}
    promised = {name: _known(one.guaranteed, 0) for name, one in budgets.items()}
    bidders = [_Bidder(one, room, promised) for one in claims]
    first = sorted(bidders, key=_Bidder.order)
    for one in first:
        one.take(min(one.claim.held, one.claim.least, one.claim.wanted))
    for one in first:
        if not one.blocked:
            one.take(max(0, min(one.claim.least, one.claim.wanted) - one.granted))
    _by_value([one for one in bidders if one.promised()], only_promised=True)
    return bidders, _by_value(bidders, only_promised=False)


def _known(amount: Amount, nothing: int) -> list[tuple[int, list[int]]]:
    return [(at, [part]) for at, part in enumerate(amount) if part != nothing]


def _by_value(bidders: list[_Bidder], *, only_promised: bool) -> dict[str, _Last]:
    """One worker after the other to whom it is worth most."""
    last: dict[str, _Last] = {}
    heap = [
        (*one.next(), at)
        for at, one in enumerate(bidders)
        if one.granted < one.claim.wanted and not one.blocked
    ]
    heapq.heapify(heap)
    while heap:
        at = heap[0][-1]
        one = bidders[at]
        if (only_promised and not one.promised()) or not one.take(1):
            heapq.heappop(heap)
            continue
        for name in one.claim.budgets:
            if (known := last.get(name)) is None or known[0] is not one.claim:
                last[name] = (one.claim, known[0] if known else None)
        if one.granted < one.claim.wanted:
            heapq.heapreplace(heap, (*one.next(), at))
        else:
            heapq.heappop(heap)
    return last


def _for_now(
    budgets: Mapping[str, Budget], claims: list[Claim], targets: Mapping[Key, int]
) -> dict[Key, int]:
    """Less at once; more only into room that is really free, for pods that leave take it still."""
    now = {one.key: min(targets[one.key], one.held) for one in claims}
    rising = [one for one in claims if targets[one.key] > one.held]
    if not rising:
        return now
    used = standing(budgets, claims)
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
        now[claim.key] = claim.held + one.take(targets[claim.key] - claim.held)
    return now


def _grant(claim: Claim, target: int, now: int, budget: str, why: str) -> Grant:
    if why:
        said = f"{target} of {claim.wanted} workers asked for: the budget of {budget} {why}"
        return Grant(now, target, budget, said)
    if now < target:
        return Grant(now, target, "", f"{now} of {target} workers until those of others have left")
    return Grant(now, target)


def _why(
    claim: Claim,
    budget: Budget,
    alone: bool,
    last: Claim | None = None,
    before: Claim | None = None,
) -> str:
    """What became of the budget, and what makes others go before: the last of them that got one."""
    if any(part > limit for part, limit in zip(claim.worker, budget.limits, strict=True)):
        return "is smaller than one of them"
    rival = before if last is claim else last
    if alone:
        return "is spent; no other input has any of it"
    if rival is None:
        return "is spent; minimums and guarantees take the rest of it"
    who = "/".join(rival.key)
    if rival.priority > claim.priority:
        return f"is spent; {who} has priority {rival.priority}"
    more = 100 * (rival.bid / claim.bid - 1) if claim.bid else math.inf
    if rival.bid and more > _MOST_TOLD:
        return f"is spent; {who} loses more per worker"
    if rival.bid and round(more) > 0:
        return f"is spent; {who} loses {round(more)} % more per worker"
    return f"is spent; it shares with {who}, which loses no more per worker"
