"""What an input requests from the cluster's budgets, and what it gets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from distributed_input.api.resource.policy import NOTHING, Amount, Budget

InputKey = tuple[str, str]
"""Namespace and name of an input."""


def namespace_of(key: InputKey) -> str:
    """Return the namespace of an input."""
    return key[0]


@dataclass(frozen=True, slots=True)
class Claim:
    """What one input requests, and what it has."""

    key: InputKey
    requested: int
    minimum: int = 0
    """Workers that other inputs cannot take."""
    replicas: int = 0
    """Replicas of its workers' Deployment."""
    leaving: int = 0
    """Existing worker pods beyond these replicas: they terminate, or are about to. None comes back
    if the replicas are raised again."""
    excess: Amount = NOTHING
    """What these pods use beyond `worker_size` each: some were larger when they were created."""
    stall_cost: float = 1.0
    """Cost while all its trainers wait, in any unit that all claims share."""
    priority: int = 0
    worker_size: Amount = (1, 0, 0)
    """What one worker uses of a budget."""
    dispatcher: Amount = NOTHING
    """What its dispatcher uses of a budget."""
    started: bool = True
    """Whether its dispatcher exists, or is about to."""
    budgets: tuple[str, ...] = ()
    """Names of the budgets that the input counts in."""
    needed: int | None = None
    """Workers at which no trainer stalls. None: the requested ones. This is more than requested
    while the number rises in steps, and less while workers are kept for the window."""

    @property
    def bid(self) -> float:
        """The stall cost that one worker saves."""
        return self.stall_cost / self.useful if self.useful else 0.0

    @property
    def useful(self) -> int:
        """The number of workers that save stall."""
        return self.requested if self.needed is None else self.needed

    @property
    def present(self) -> int:
        """The number of workers that exist or are about to."""
        return self.replicas + self.leaving


@dataclass(frozen=True, slots=True)
class Grant:
    """The workers that an input gets for a claim."""

    workers: int
    """Workers for now."""
    target: int
    """Workers once the pods that other inputs give up are gone."""
    budget: str = ""
    """Name of the budget that is used up. Empty: the target is all that was requested."""
    message: str = ""
    """One sentence that explains why it is fewer than requested."""
    dispatcher: bool = True
    """Whether the input may have its dispatcher."""


def full_grant(requested: int) -> Grant:
    """Return the grant of an input that no budget limits."""
    return Grant(requested, requested)


@dataclass(frozen=True)
class WorkerRequest:
    """An input's claim before the policy sets its budgets and the price of its stall.

    It has what the input declares. The policy limits that.
    """

    claim: Claim
    """`stall_cost` is a number of accelerators. `budgets` is empty."""
    accelerator: str = ""
    weight: float = 1.0
    priority_class: str = ""
    labels: Mapping[str, str] | None = field(default_factory=dict)
    """None: unknown, because the input is deleted. It then counts in all budgets of its namespace
    that it may have counted in."""
    namespace_labels: Mapping[str, str] | None = None
    """Labels of the input's namespace. None: unknown, with the same effect."""
    scaling: bool = False
    """Whether pods for an earlier, larger number may still be created."""
    incomplete: bool = False
    """Whether pods for the present number are still to be created."""
    resources: tuple[str, ...] = ()
    """Names of the resources after CPU and memory in the amounts of the claim."""


def by_name(
    amount: Amount, of: Sequence[str], resources: Sequence[str], missing: Amount = ()
) -> Amount:
    """Return an amount of these resources. It may be of an earlier policy, with others.

    Args:
        amount: what is known: workers, CPU and memory, then the resources `of`.
        of: their names.
        resources: the names in the result.
        missing: an amount of `resources`, for those that are not in `of`. Empty: 0.
    """
    parts = dict(zip(resources, missing[3:], strict=False))
    parts |= dict(zip(of, amount[3:], strict=False))
    return (*amount[:3], *(parts.get(name, 0) for name in resources))


def completed(known: WorkerRequest, found: WorkerRequest) -> WorkerRequest:
    """Return a request with what only another request of the same input has."""
    one, other, names = known.claim, found.claim, (known.resources, found.resources)
    claim = replace(
        one,
        worker_size=by_name(one.worker_size, *names, other.worker_size),
        excess=by_name(one.excess, *names, other.excess),
        dispatcher=by_name(one.dispatcher, *names, other.dispatcher),
    )
    of = found.namespace_labels if known.namespace_labels is None else known.namespace_labels
    return replace(known, claim=claim, namespace_labels=of, resources=found.resources)


@dataclass(frozen=True)
class BudgetUsage:
    """How much of one budget is used."""

    budget: Budget
    inputs: int
    """Inputs that count in it."""
    requested: int
    """Workers that these inputs request."""
    used: Amount
    """What existing pods use, and those that are granted but not created yet."""


def total_amounts(budgets: Iterable[str], parts: Iterable[tuple[Claim, int]]) -> dict[str, Amount]:
    """Return what the given number of workers of each claim uses, by budget.

    `budgets`: by name, or only names if every claim has all resources.
    """
    known = budgets if isinstance(budgets, Mapping) else {}
    sums = {one: (0,) * len(known[one].limits) if known else NOTHING for one in budgets}
    for claim, count in parts:
        if count:
            for name in claim.budgets:
                sums[name] = add(sums[name], claim.worker_size, count)
    return sums


def dispatcher_amounts(sums: dict[str, Amount], claims: Iterable[Claim]) -> dict[str, Amount]:
    """Return the sums with what the dispatchers of these claims use, by budget."""
    result = dict(sums)
    for one in claims:
        if any(one.dispatcher):
            for name in one.budgets:
                result[name] = add(result[name], one.dispatcher)
    return result


def present_amounts(budgets: Iterable[str], claims: Iterable[Claim]) -> dict[str, Amount]:
    """Return what the workers that exist, or are about to, use of each budget."""
    known = list(claims)
    sums = total_amounts(budgets, ((one, one.present) for one in known))
    sums = dispatcher_amounts(sums, (one for one in known if one.started))
    for one in known:
        if any(one.excess):
            for name in one.budgets:
                sums[name] = add(sums[name], one.excess)
    return sums


def add(one: Amount, other: Amount, sign: int = 1) -> Amount:
    """Return the first amount and `sign` times the other. A missing part is 0."""
    return tuple(a + sign * b for a, b in zip_longest(one, other, fillvalue=0))
