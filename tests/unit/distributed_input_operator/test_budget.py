"""A budget of a few workers, in all orders of asking, writing, restarts and pods that end."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from distributed_input_operator.controller import ledger
from distributed_input_operator.controller.ledger import Ledger
from distributed_input_operator.reconcile import claims
from tests.unit.distributed_input_operator.controller import budget_world
from tests.unit.distributed_input_operator.controller.budget_orders import (
    Ledgers,
    Search,
    State,
    own_steps,
)


def search(workers, **more):
    return Search(Ledgers(workers), (0, workers), **more).run()


@pytest.mark.slow
def test_a_budget_holds_in_all_orders_of_actions_and_is_used_up_in_the_end():
    """`make budgets` does this with 3 workers."""
    found = search(int(os.environ.get("BUDGET_WORKERS", "2")))
    assert found.fault == ""
    print(f"{len(found.states)} states, {found.transitions} transitions")


def test_no_state_is_lost_if_an_inputs_own_steps_wait_for_the_next_reconciliation():
    ledgers = Ledgers(1)
    together = Search(ledgers, (0, 1)).run()
    alone = Search(ledgers, (0, 1), alone=True).run()
    reached = {
        State(steps, number)
        for inputs, number in together.states
        for steps in product(*map(own_steps, inputs))
    }
    assert len(together.states) < len(reached) / 4
    assert reached == set(alone.states)


def _raised_again(grant):
    """Return a `_grant` that repeats a number although the pods that gave it up still end."""

    def changed(self, claim, last):
        granted = grant(self, claim, last)
        again = min(claim.requested, last.workers) if last else 0
        return replace(granted, workers=max(granted.workers, again))

    return changed


@pytest.mark.parametrize(
    ("owner", "guard", "without", "workers", "fault"),
    [
        (Ledger, "_grant", _raised_again(Ledger._grant), 2, "too many pods"),
        (ledger, "_with_grant", lambda claim, _: claim, 1, "too many pods"),
        (claims, "_is_scaling", lambda *_: False, 2, "too many pods"),
        (Ledger, "complete", Ledger.request, 2, "too many pods"),
        (Ledger, "_has_room", lambda *_: True, 1, "not settled"),
    ],
    ids=("raised-again", "unwritten-grant", "scaling", "restart", "room"),
)
def test_the_search_finds_what_each_guard_prevents(
    monkeypatch, owner, guard, without, workers, fault
):
    monkeypatch.setattr(owner, guard, without)
    for table in ("_found", "_request"):
        monkeypatch.setattr(budget_world, table, cache(getattr(budget_world, table).__wrapped__))
    assert search(workers).fault.startswith(fault)
