"""Claims and grants over time: granted at once if there is room, otherwise reallocated."""

from __future__ import annotations

from dataclasses import replace

from distributed_input.api.resource.policy import PolicySpec
from distributed_input_operator.budget.claim import Claim, WorkerRequest
from distributed_input_operator.controller.ledger import Ledger


def policy(**spec):
    return PolicySpec.model_validate(spec)


def limited(workers, **more):
    """Return a policy with one budget for all inputs."""
    return policy(budgets=[{"name": "all", "limits": {"workers": workers}}], **more)


def selecting(name, workers, **labels):
    """Return a budget of the inputs with these labels. Default: of=a."""
    selector = {"matchLabels": labels or {"of": "a"}}
    return {"name": name, "selector": selector, "limits": {"workers": workers}}


def ledger_with(workers):
    ledger = Ledger()
    ledger.set_policy(limited(workers))
    return ledger


def request(name, requested, replicas=0, pods=0, accelerator="", **more):
    claim = Claim(("t", name), requested, 1, replicas, max(0, pods - replicas), **more)
    return WorkerRequest(claim, accelerator, incomplete=pods < replicas)


def delete(ledger, name, pods):
    """Delete the input while this number of its pods remains."""
    key = ("t", name)
    remaining = WorkerRequest(Claim(key, 0, leaving=pods), labels=None) if pods else None
    ledger.release(key, remaining)


def test_a_request_is_granted_at_once_if_there_is_room():
    ledger = ledger_with(10)
    ledger.reallocate()
    assert ledger.request(request("a", 6)).workers == 6
    assert not ledger.outdated
    assert ledger.request(request("b", 6)).workers == 0
    assert ledger.outdated, "there is no room for six more"


def test_a_number_that_somebody_else_lowered_rises_only_as_there_is_room():
    ledger = ledger_with(10)
    ledger.request(request("a", 8, replicas=8, pods=8))
    ledger.reallocate()
    assert ledger.request(request("a", 8, replicas=1, pods=8)).workers == 1
    ledger.reallocate()
    assert ledger.request(request("a", 8, replicas=1, pods=8)).workers == 3


def test_a_new_operator_waits_for_pods_of_a_number_that_it_does_not_know():
    ledger = ledger_with(10)
    busy = replace(request("a", 2, replicas=2, pods=3), scaling=True)
    ledger.complete(busy)
    ledger.reallocate()
    assert ledger.request(request("b", 4)).workers == 0
    ledger.request(replace(busy, scaling=False))
    ledger.reallocate()
    assert ledger.request(request("b", 4)).workers == 4
    waiting = ledger_with(10)
    waiting.complete(busy)
    waiting.reallocate()
    waiting.settle()
    assert waiting.outdated
    waiting.reallocate()
    assert waiting.request(request("b", 4)).workers == 4


def test_the_policy_sets_the_stall_costs():
    ledger = Ledger()
    ledger.set_policy(limited(10, stallCosts={"h100": "4", "old": "250m"}))
    ledger.request(request("new", 8, accelerator="h100"))
    ledger.request(request("old", 8, accelerator="old"))
    ledger.reallocate()
    new = ledger.request(request("new", 8, accelerator="h100"))
    old = ledger.request(request("old", 8, accelerator="old"))
    assert (new.target, old.target) == (8, 2)
    assert "t/new loses 1500 % more per worker" in old.message


def test_a_deleted_input_counts_while_its_pods_terminate():
    ledger = ledger_with(10)
    ledger.reallocate()
    ledger.request(request("a", 9, replicas=9))
    delete(ledger, "a", 9)
    assert ledger.request(request("b", 5)).workers == 0
    delete(ledger, "a", 4)
    ledger.reallocate()
    assert ledger.request(request("b", 5)).workers == 5
    delete(ledger, "a", 0)
    assert [one.inputs for one in ledger.usage()] == [1]


def test_deleting_the_policy_removes_all_limits():
    ledger = Ledger()
    ledger.set_policy(limited(2))
    ledger.request(request("a", 9))
    ledger.reallocate()
    assert ledger.request(request("a", 9)).workers == 2
    ledger.set_policy(PolicySpec())
    assert ledger.reallocate() == [("t", "a")]
    assert ledger.request(request("a", 9)).workers == 9


def test_a_waiting_input_gets_the_workers_of_a_deleted_one():
    ledger = ledger_with(10)
    ledger.request(request("a", 10, replicas=4))
    delete(ledger, "b", 0)
    ledger.request(request("b", 6, replicas=6))
    ledger.reallocate()
    delete(ledger, "b", 6)
    ledger.reallocate()
    assert ledger.request(request("a", 10, replicas=4)).workers == 4
    delete(ledger, "b", 0)
    assert ledger.outdated
    assert ledger.reallocate() == [("t", "a")]
    assert ledger.request(request("a", 10, replicas=4)).workers == 10


def test_a_grant_that_was_lowered_before_it_was_used_reserves_nothing():
    ledger = ledger_with(10)
    ledger.request(request("a", 10, replicas=4))
    ledger.reallocate()
    ledger.request(request("b", 5, stall_cost=100.0))
    ledger.reallocate()
    assert ledger.request(request("b", 5, stall_cost=100.0)).workers == 0, "10 may be written for a"
    lowered = ledger.request(request("a", 10, replicas=4)).workers
    assert lowered < 10
    assert ledger.outdated
    ledger.reallocate()
    assert ledger.request(request("b", 5, stall_cost=100.0)).workers == 5


def test_a_changed_request_reserves_only_its_own_number():
    ledger = ledger_with(10)
    ledger.reallocate()
    for requested in (3, 4, 5):
        ledger.request(request("a", requested, replicas=requested - 1))
    assert ledger.request(request("b", 5)).workers == 5
    assert not ledger.outdated


def test_a_smaller_request_is_granted_at_once_while_others_wait():
    ledger = ledger_with(10)
    ledger.request(request("a", 8, replicas=8))
    ledger.request(request("b", 8))
    ledger.reallocate()
    before = ledger.request(request("a", 8, replicas=8)).workers
    assert ledger.request(request("a", before - 2, replicas=before)).workers == before - 2


def test_new_workers_count_beside_terminating_pods():
    ledger = ledger_with(10)
    ledger.reallocate()
    assert ledger.request(request("a", 5, replicas=2, pods=6)).workers == 5, (
        "nine pods exist for a while"
    )
    assert ledger.request(request("b", 2)).workers == 0
    assert ledger.request(request("c", 1)).workers == 1


def test_an_input_whose_labels_move_it_into_a_full_budget_needs_a_reallocation():
    """Its workers run already, so the budget is exceeded until then."""
    ledger = Ledger()
    ledger.set_policy(policy(budgets=[selecting("a", 4)]))
    for name in "ab":
        item = request(name, 4, replicas=4)
        ledger.request(replace(item, labels={"of": name}))
        ledger.request(replace(item, labels={"of": name}))
    ledger.reallocate()
    ledger.request(replace(request("b", 4, replicas=4), labels={"of": "a"}))
    assert ledger.outdated
    ledger.reallocate()
    assert sum(one.requested for one in ledger.usage()) == 8
    grants = [ledger.request(replace(request(n, 4, replicas=4), labels={"of": "a"})) for n in "ab"]
    assert sum(one.workers for one in grants) == 4


def test_workers_that_become_larger_need_a_reallocation():
    ledger = Ledger()
    ledger.set_policy(policy(budgets=[{"name": "all", "limits": {"resources": {"cpu": "8"}}}]))
    ledger.reallocate()
    assert ledger.request(request("a", 8, replicas=8, worker_size=(1, 1000, 0))).workers == 8
    assert not ledger.outdated
    ledger.request(request("a", 8, replicas=8, worker_size=(1, 4000, 0)))
    assert ledger.outdated
    ledger.reallocate()
    assert ledger.request(request("a", 8, replicas=8, worker_size=(1, 4000, 0))).workers == 2


def test_a_grant_from_another_budget_does_not_carry_over_to_a_full_one():
    """The grant was not written yet when the labels changed."""
    ledger = Ledger()
    ledger.set_policy(policy(budgets=[selecting("a", 4)]))
    ledger.request(replace(request("full", 4, replicas=4), labels={"of": "a"}))
    ledger.reallocate()
    assert ledger.request(request("b", 8)).workers == 8
    assert ledger.request(replace(request("b", 8), labels={"of": "a"})).workers == 0


def test_an_unwritten_grant_counts_under_a_new_policy_too():
    ledger = ledger_with(10)
    ledger.reallocate()
    assert ledger.request(request("a", 8)).workers == 8, "this is being written"
    ledger.set_policy(limited(10, stallCosts={"h100": "9"}))
    ledger.request(request("b", 8, stall_cost=100.0))
    ledger.reallocate()
    assert ledger.request(request("b", 8, stall_cost=100.0)).workers == 2


def test_pods_of_an_earlier_size_count_with_that_size():
    """Four workers of four CPUs become four of one CPU. The old pods count until they are gone."""
    ledger = Ledger()
    ledger.set_policy(policy(budgets=[{"name": "all", "limits": {"resources": {"cpu": "16"}}}]))
    ledger.reallocate()
    small = {"worker_size": (1, 1000, 0)}
    ledger.request(request("a", 4, replicas=4, worker_size=(1, 4000, 0)))
    ledger.request(request("a", 4, replicas=4, excess=(0, 12_000, 0), **small))
    assert ledger.usage()[0].used == (4, 16_000, 0)
    assert ledger.request(request("b", 4, **small)).workers == 0
    ledger.reallocate()
    assert ledger.request(request("b", 4, **small)).workers == 0
    ledger.request(request("a", 4, replicas=4, excess=(0, 9000, 0), **small))
    assert ledger.request(request("c", 3, **small)).workers == 0, "b waits for free workers"
    ledger.reallocate()
    grants = [ledger.request(request("b", 4, **small)), ledger.request(request("c", 3, **small))]
    assert sum(one.workers for one in grants) == 3
    ledger.request(request("a", 4, replicas=4, **small))
    ledger.reallocate()
    assert ledger.request(request("b", 4, **small)).workers == 4


def test_the_pods_of_a_deleted_input_count_in_each_budget_that_may_be_theirs():
    ledger = Ledger()
    elsewhere = {"name": "else", "namespaces": ["other"], "limits": {"workers": 5}}
    budgets = [selecting("team", 5), elsewhere]
    ledger.set_policy(policy(budgets=budgets))
    ledger.reallocate()
    delete(ledger, "old", 3)
    assert [one.used[0] for one in ledger.usage()] == [3, 0]
    assert ledger.request(replace(request("new", 5), labels={"of": "a"})).workers == 0
    known = Ledger()
    known.set_policy(policy(budgets=budgets))
    known.reallocate()
    known.request(replace(request("old", 3, replicas=3), labels={"of": "b"}))
    delete(known, "old", 3)
    assert [one.used[0] for one in known.usage()] == [0, 0], (
        "its labels are known, and they do not match"
    )


def test_an_unchanged_request_needs_no_reallocation():
    """Each reallocation reconciles the policy, which sets it again. That must not go on forever."""
    ledger = ledger_with(10)
    ledger.request(request("a", 12))
    ledger.reallocate()
    ledger.set_policy(limited(10))
    ledger.request(request("a", 12))
    assert not ledger.outdated
    ledger.request(again := request("a", 12, replicas=8, pods=9))
    ledger.reallocate()
    assert ledger.request(again).workers == 9
    assert not ledger.outdated, "pods leave beside granted ones"


def test_a_new_input_does_not_inherit_the_grant_of_a_deleted_one_of_the_same_name():
    ledger = ledger_with(10)
    ledger.reallocate()
    assert ledger.request(request("a", 8)).workers == 8
    delete(ledger, "a", 0)
    assert ledger.request(request("b", 10)).workers == 10
    assert ledger.request(request("a", 8)).workers == 0


def priced(ledger, made):
    """Return the claim that the ledger makes of a request."""
    ledger.request(made)
    return ledger._claims[made.claim.key]


def test_what_an_input_declares_counts_up_to_the_caps():
    declared = request("a", 500, stall_cost=4096.0, priority=1000)
    declared = replace(declared, weight=1000.0, claim=replace(declared.claim, minimum=500))
    ledger = ledger_with(10)
    claim = priced(ledger, declared)
    assert (claim.priority, claim.stall_cost, claim.minimum) == (1000, 4096e3, 500)
    caps = {"priority": 0, "weight": "2", "accelerators": 64, "minReplicas": 3}
    ledger.set_policy(limited(10, caps=caps))
    claim = priced(ledger, declared)
    assert (claim.priority, claim.stall_cost, claim.minimum) == (0, 128.0, 3)
    modest = request("b", 5, stall_cost=1.0, priority=-1)
    claim = priced(ledger, modest)
    assert (claim.priority, claim.stall_cost, claim.minimum) == (-1, 1.0, 1)
