"""The claims and grants of all inputs: the one stateful object of budgeting.

The leader owns one ledger, and builds it again from the cluster when it starts. While a budget has
room, a request is granted at once. Otherwise the previous grant stays until all claims are divided
together (`reallocate`), once for many changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from distributed_input.api.resource.policy import Amount, Budget, PolicySpec
from distributed_input.api.resource.scalars import quantity
from distributed_input_operator.budget.allocation import allocate
from distributed_input_operator.budget.claim import (
    BudgetUsage,
    Claim,
    Grant,
    InputKey,
    WorkerRequest,
    add,
    by_name,
    completed,
    full_grant,
    present_amounts,
)

_HELD = "no more workers: the InputPolicy cannot be used, see its condition Ready"


class Ledger:
    """The claims and grants of all inputs.

    Attributes:
        outdated: whether `reallocate` is due.
    """

    def __init__(self) -> None:
        self.outdated = False
        self._policy = PolicySpec()
        self._held = False
        self._budgets: dict[str, Budget] = {}
        self._requests: dict[InputKey, WorkerRequest] = {}
        self._claims: dict[InputKey, Claim] = {}
        self._grants: dict[InputKey, Grant] = {}
        self._reserved: dict[str, Amount] = {}
        self._unsettled: set[InputKey] = set()
        """Inputs whose pods may still be created for a number that an earlier operator wrote, and
        that is not known. Until they are counted, no input of a budget gets more than it has."""
        self._short: set[str] = set()
        """Budgets with inputs that have fewer workers than they request. Workers that become free
        are theirs."""

    @property
    def policy(self) -> PolicySpec:
        """The policy in force."""
        return self._policy

    def hold(self) -> None:
        """Grant no input more than it has, until a policy is set: there is one, but unreadable."""
        self._held = True

    def set_policy(self, policy: PolicySpec) -> None:
        """Use this policy from now on."""
        if policy == self._policy and not self._held:
            return
        self._policy, self._held = policy, False
        others = policy.resource_names
        self._budgets = {one.name: one.budget(others) for one in policy.budgets}
        self._claims = {key: self._priced_again(key) for key in self._claims}
        self._compute_reserved()
        self._short = set(self._budgets)
        self.outdated = True

    def request(self, request: WorkerRequest) -> Grant:
        """Record an input's request. Return its grant for now, which `reallocate` may change."""
        key = request.claim.key
        if self._requests.get(key) != request or self._has_lapsed(request):
            self._enter(key, request)
        return self._grants[key]

    def complete(self, found: WorkerRequest) -> None:
        """Enter what an input has.

        If the input is known, only what its request lacks is added: amounts of resources that it
        does not name, and the labels of its namespace.
        """
        key = found.claim.key
        known = self._requests.get(key)
        if known is None:
            self.request(found)
            if found.scaling and self._claims[key].budgets:
                self._unsettled.add(key)
            return
        self._book(self._claims[key], -1)
        self._requests[key] = completed(known, found)
        self._claims[key] = self._priced_again(key)
        self._book(self._claims[key], 1)
        self.outdated = True

    def remove(self, key: InputKey) -> None:
        """Remove a deleted input whose pods are gone."""
        if key in self._claims:
            claim = self._claims.pop(key)
            self._book(claim, -1)
            self.outdated |= not self._short.isdisjoint(claim.budgets)
        self._requests.pop(key, None)
        self._grants.pop(key, None)
        self.settle({key})

    def settle(self, keys: Collection[InputKey] | None = None) -> None:
        """Record that the pods of inputs are counted. None: do not wait for any input."""
        waited = bool(self._unsettled)
        self._unsettled = self._unsettled.difference(keys) if keys is not None else set()
        self.outdated |= waited and not self._unsettled

    def may_create(self, key: InputKey) -> bool:
        """Return whether an input still had pods to create when it was last seen."""
        known, claim = self._requests.get(key), self._claims.get(key)
        if known is None or claim is None:
            return False
        return known.scaling or known.incomplete or claim.present > known.claim.present

    def release(
        self, key: InputKey, remaining: WorkerRequest | None, *, settled: bool = True
    ) -> None:
        """Record that an input is deleted.

        Args:
            key: the input.
            remaining: what still exists of it. None: nothing.
            settled: whether no more pods of it can be created. Otherwise nothing is released.
        """
        known = self._requests.get(key)
        if remaining is None and (settled or known is None):
            self.remove(key)
            return
        if not settled and known is not None:
            nothing = replace(known.claim, requested=0, minimum=0, replicas=0, leaving=0)
            remaining = replace(remaining or replace(known, claim=nothing), scaling=True)
        assert remaining is not None
        if known is not None:
            of = known.namespace_labels
            remaining = replace(remaining, labels=known.labels, namespace_labels=of)
        self.request(remaining)

    def reallocate(self) -> list[InputKey]:
        """Divide the budgets among all claims. Return the inputs whose grant changed."""
        self.outdated = False
        if self._held or self._unsettled:
            return []
        limited = [one for one in self._claims.values() if one.budgets]
        grants = allocate(self._budgets, limited)
        grants |= {
            key: full_grant(one.requested) for key, one in self._claims.items() if not one.budgets
        }
        changed = [key for key, grant in grants.items() if self._grants.get(key) != grant]
        self._grants = grants
        self._short = {
            name
            for one in limited
            if grants[one.key].workers < one.requested
            for name in one.budgets
        }
        self._claims = {key: _with_grant(one, grants[key]) for key, one in self._claims.items()}
        self._compute_reserved()
        return sorted(changed)

    def usage(self) -> list[BudgetUsage]:
        """Return how much of each budget is used, in the policy's order."""
        inputs, requested = dict.fromkeys(self._budgets, 0), dict.fromkeys(self._budgets, 0)
        for one in self._claims.values():
            for name in one.budgets:
                inputs[name] += 1
                requested[name] += one.requested
        return [
            BudgetUsage(one, inputs[name], requested[name], self._reserved[name])
            for name, one in self._budgets.items()
        ]

    def _enter(self, key: InputKey, request: WorkerRequest) -> None:
        claim, before, last = self._priced(request), self._claims.get(key), self._grants.get(key)
        if not request.scaling:
            self.settle({key})
        if before is not None:
            self._book(before, -1)
            if request.scaling:
                leaving = max(claim.leaving, before.present - claim.replicas)
                claim = replace(claim, leaving=leaving)
            if (before.budgets, before.worker_size) != (claim.budgets, claim.worker_size):
                last = None  # It was granted from other budgets, or for workers of another size.
        grant = self._grant(claim, last)
        self._requests[key], self._grants[key] = request, grant
        self._claims[key] = _with_grant(claim, grant)
        self._book(self._claims[key], 1)

    def _has_lapsed(self, request: WorkerRequest) -> bool:
        """Return whether workers are reserved for a grant that was lowered before it was used."""
        key = request.claim.key
        claim, grant = self._claims[key], self._grants[key]
        if claim.started and not (request.claim.started or grant.dispatcher):
            return True
        used = max(request.claim.replicas, grant.workers) + request.claim.leaving
        return claim.present > used and not request.scaling

    def _grant(self, claim: Claim, last: Grant | None) -> Grant:
        if self._held:
            kept = min(claim.requested, last.workers if last else claim.replicas)
            why = _HELD if kept < claim.requested else ""
            return Grant(kept, kept, "", why, claim.started)
        if self._short.isdisjoint(claim.budgets) and self._has_room(claim, claim.requested):
            return full_grant(claim.requested)
        self.outdated = True
        known = last or replace(full_grant(claim.replicas), dispatcher=claim.started)
        kept = min(claim.requested, known.workers)
        if not self._has_room(claim, kept):
            kept = min(kept, claim.replicas)
        return replace(known, workers=kept)

    def _has_room(self, claim: Claim, replicas: int) -> bool:
        """Return whether a claim's pods fit beside those of others if it gets these replicas.

        The claim itself must not be booked at this moment.
        """
        if self._unsettled and claim.budgets and replicas > claim.replicas:
            return False
        pods = max(replicas, claim.replicas) + claim.leaving
        return all(
            taken + pods * part + more + first <= limit
            for name in claim.budgets
            for taken, part, more, first, limit in zip(
                self._reserved[name],
                claim.worker_size,
                claim.excess,
                claim.dispatcher,
                self._budgets[name].limits,
                strict=True,
            )
        )

    def _priced(self, request: WorkerRequest) -> Claim:
        """Return the request's claim with the policy's budgets and price."""
        claim, policy, caps = request.claim, self._policy, self._policy.caps
        price = float(quantity(policy.stall_costs.get(request.accelerator, "1")))
        accelerators = caps.limited("accelerators", claim.stall_cost)
        return replace(
            claim,
            stall_cost=accelerators * caps.limited("weight", request.weight) * price,
            priority=policy.priority(claim.key[0], request.priority_class, claim.priority),
            minimum=int(caps.limited("min_replicas", claim.minimum)),
            budgets=policy.budgets_of(claim.key[0], request.labels, request.namespace_labels),
            worker_size=by_name(claim.worker_size, request.resources, policy.resource_names),
            excess=by_name(claim.excess, request.resources, policy.resource_names),
            dispatcher=by_name(claim.dispatcher, request.resources, policy.resource_names),
        )

    def _priced_again(self, key: InputKey) -> Claim:
        """Return a known input's claim. It counts a recent grant, which may not be written yet."""
        one = self._claims[key]
        priced = self._priced(self._requests[key])
        return replace(priced, replicas=one.replicas, leaving=one.leaving, started=one.started)

    def _book(self, claim: Claim, sign: int) -> None:
        for name, amount in present_amounts(claim.budgets, [claim]).items():
            self._reserved[name] = add(self._reserved[name], amount, sign)

    def _compute_reserved(self) -> None:
        self._reserved = present_amounts(self._budgets, self._claims.values())


def _with_grant(claim: Claim, grant: Grant) -> Claim:
    """Count granted pods as present before they are: they are about to be created."""
    started = claim.started or grant.dispatcher
    return replace(claim, replicas=max(claim.replicas, grant.workers), started=started)
