"""What all inputs ask for and were granted. Pure state, of one leader; made anew from the cluster.

Where a budget has room, an input is answered at once. Where it has none, the answer is what it was,
until all claims have been weighed together (`settle`), once for many that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from distributed_input.api.resource.policy import Amount, Budget, PolicySpec
from distributed_input_operator.budget.allocation import Claim, Grant, Key, allocate, standing


@dataclass(frozen=True)
class Ask:
    """An input's claim, before the policy says what it counts in and what its stall costs."""

    claim: Claim
    """`cost` in accelerators of cost 1; without budgets."""
    accelerator: str = ""
    labels: Mapping[str, str] | None = field(default_factory=dict)
    """None: not known, for the input is gone: then it counts wherever it may have counted."""
    moving: bool = False
    """Pods of an earlier, larger number may still be made."""


@dataclass(frozen=True)
class Used:
    """What a budget has given."""

    budget: Budget
    inputs: int
    """That count in it."""
    wanted: int
    """Workers that these ask for."""
    used: Amount
    """Of all that there is, and of what was granted and comes."""


class Ledger:
    """Claims and grants of all inputs.

    Attributes:
        unsettled: whether claims wait to be weighed.
    """

    def __init__(self) -> None:
        self.unsettled = False
        self._policy = PolicySpec()
        self._budgets: dict[str, Budget] = {}
        self._asks: dict[Key, Ask] = {}
        self._claims: dict[Key, Claim] = {}
        self._grants: dict[Key, Grant] = {}
        self._reserved: dict[str, Amount] = {}
        self._short: set[str] = set()
        """Budgets of inputs that have less than they want: what becomes free is theirs."""

    def use(self, policy: PolicySpec) -> None:
        """From now on this holds."""
        if policy == self._policy:
            return
        self._policy = policy
        self._budgets = {one.name: one.budget() for one in policy.budgets}
        # What was granted a moment ago may not be written yet: it counts in these budgets too.
        self._claims = {
            key: replace(self._priced(self._asks[key]), held=one.held, occupied=one.occupied)
            for key, one in self._claims.items()
        }
        self._count()
        self._short = set(self._budgets)
        self.unsettled = True

    def ask(self, ask: Ask) -> Grant:
        """Workers for an input, for now; `settle` may say otherwise."""
        key = ask.claim.key
        if self._asks.get(key) != ask:
            self._enter(key, ask)
        return self._grants[key]

    def forget(self, key: Key) -> None:
        """The input is gone, and all its pods."""
        if key in self._claims:
            gone = self._claims.pop(key)
            self._book(gone, -1)
            self.unsettled |= not self._short.isdisjoint(gone.budgets)
        self._asks.pop(key, None)
        self._grants.pop(key, None)

    def leaving(self, key: Key, left: Ask | None) -> None:
        """The input is gone, and this of it is still there."""
        if left is None:
            self.forget(key)
            return
        known = self._asks.get(key)
        self.ask(replace(left, labels=known.labels if known else None))

    def settle(self) -> list[Key]:
        """Weigh all claims; the inputs whose grant is another one now."""
        self.unsettled = False
        limited = [one for one in self._claims.values() if one.budgets]
        made = allocate(self._budgets, limited)
        free = {
            key: Grant(one.wanted, one.wanted)
            for key, one in self._claims.items()
            if not one.budgets
        }
        made |= free
        changed = [key for key, grant in made.items() if self._grants.get(key) != grant]
        self._grants = made
        self._short = {
            name for one in limited if made[one.key].workers < one.wanted for name in one.budgets
        }
        self._claims = {key: _promised(one, made[key]) for key, one in self._claims.items()}
        self._count()
        return sorted(changed)

    def budgets(self) -> list[Used]:
        """What each budget has given, in the policy's order."""
        inputs, wanted = dict.fromkeys(self._budgets, 0), dict.fromkeys(self._budgets, 0)
        for one in self._claims.values():
            for name in one.budgets:
                inputs[name] += 1
                wanted[name] += one.wanted
        return [
            Used(one, inputs[name], wanted[name], self._reserved[name])
            for name, one in self._budgets.items()
        ]

    def _enter(self, key: Key, ask: Ask) -> None:
        claim, before, last = self._priced(ask), self._claims.get(key), self._grants.get(key)
        if before is not None:
            self._book(before, -1)
            if ask.moving:
                claim = replace(claim, occupied=max(claim.occupied, before.standing))
            if (before.budgets, before.worker) != (claim.budgets, claim.worker):
                last = None  # granted of other budgets, or of other workers
        grant = self._answer(claim, last)
        self._asks[key], self._grants[key] = ask, grant
        self._claims[key] = _promised(claim, grant)
        self._book(self._claims[key], 1)

    def _answer(self, claim: Claim, last: Grant | None) -> Grant:
        more = max(0, claim.wanted - claim.held)
        if self._short.isdisjoint(claim.budgets) and self._room(claim, claim.standing + more):
            return Grant(claim.wanted, claim.wanted)
        self.unsettled = True
        known = last or Grant(claim.held, claim.held)
        return replace(known, workers=min(claim.wanted, known.workers))

    def _room(self, claim: Claim, workers: int) -> bool:
        """Whether so many fit beside what the others have: it is not booked itself just now."""
        return all(
            taken + workers * part + more <= limit
            for name in claim.budgets
            for taken, part, more, limit in zip(
                self._reserved[name],
                claim.worker,
                claim.excess,
                self._budgets[name].limits,
                strict=True,
            )
        )

    def _priced(self, ask: Ask) -> Claim:
        claim = ask.claim
        namespace = claim.key[0]
        price = self._policy.stall_costs.get(ask.accelerator, 1.0)
        names = tuple(one.name for one in self._policy.budgets if one.covers(namespace, ask.labels))
        return replace(claim, cost=claim.cost * price, budgets=names)

    def _book(self, claim: Claim, sign: int) -> None:
        for name, (workers, cpu, memory) in standing(claim.budgets, [claim]).items():
            one = self._reserved[name]
            self._reserved[name] = (
                one[0] + sign * workers,
                one[1] + sign * cpu,
                one[2] + sign * memory,
            )

    def _count(self) -> None:
        self._reserved = standing(self._budgets, self._claims.values())


def _promised(claim: Claim, grant: Grant) -> Claim:
    """What was granted counts as there before its pods are: the write is on its way."""
    if grant.workers <= claim.held:
        return claim
    more = grant.workers - claim.held
    return replace(claim, held=grant.workers, occupied=claim.occupied + more)
