"""Compute how much of each budget claims use. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    """What existing workers use, and those that are granted but not created yet."""


def total_amounts(budgets: Iterable[str], parts: Iterable[tuple[Claim, int]]) -> dict[str, Amount]:
    """Return what the given number of workers of each claim uses, by budget."""
    sums = dict.fromkeys(budgets, NOTHING)
    for claim, count in parts:
        if count:
            workers, cpu, memory = claim.worker_size
            for name in claim.budgets:
                used = sums[name]
                sums[name] = (
                    used[0] + count * workers,
                    used[1] + count * cpu,
                    used[2] + count * memory,
                )
    return sums


def present_amounts(budgets: Iterable[str], claims: Iterable[Claim]) -> dict[str, Amount]:
    """Return what the workers that exist, or are about to, use of each budget."""
    known = list(claims)
    sums = total_amounts(budgets, ((one, one.present) for one in known))
    for one in known:
        if one.excess != NOTHING:
            for name in one.budgets:
                sums[name] = add(sums[name], one.excess)
    return sums


def add(one: Amount, other: Amount, sign: int = 1) -> Amount:
    """Return the sum of two amounts, or their difference if `sign` is -1."""
    return (one[0] + sign * other[0], one[1] + sign * other[1], one[2] + sign * other[2])
