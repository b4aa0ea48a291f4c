"""Compute how much of each budget claims use. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from distributed_input.api.resource.policy import NOTHING, Amount, Budget
from distributed_input_operator.budget.claim import Claim


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
