"""Claims and grants over time: answered at once where there is room, weighed where not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.resource.policy import PolicySpec
from distributed_input_operator.budget.allocation import Claim
from distributed_input_operator.budget.ledger import Ask, Ledger


def policy(**spec):
    return PolicySpec.model_validate(spec)


def limited(workers, **more):
    """One budget for all."""
    return policy(budgets=[{"name": "all", "limits": {"workers": workers}}], **more)


def ask(name, wanted, held=0, occupied=None, namespace="t", accelerator="", **more):
    key = (namespace, name)
    pods = held if occupied is None else occupied
    return Ask(Claim(key, wanted, 1, held, pods, **more), accelerator)


def gone(ledger, name, pods):
    """The input is gone, and so many of its pods are still there."""
    key = ("t", name)
    ledger.leaving(key, Ask(Claim(key, 0, occupied=pods), labels=None) if pods else None)


def test_without_a_policy_all_get_what_they_ask_for():
    ledger = Ledger()
    assert ledger.ask(ask("a", 900)).workers == 900
    assert not ledger.unsettled


def test_where_there_is_room_the_answer_comes_at_once():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    assert ledger.ask(ask("a", 6)).workers == 6
    assert not ledger.unsettled
    assert ledger.ask(ask("b", 6)).workers == 0
    assert ledger.unsettled, "there is no room for six more: all are weighed"


def test_what_was_granted_counts_before_its_pods_are_there():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    ledger.ask(ask("a", 8))
    ledger.ask(ask("b", 8, cost=100.0))
    ledger.settle()
    assert ledger.ask(ask("b", 8, cost=100.0)).workers == 2, "a may be writing its 8 right now"
    ledger.ask(ask("a", 8, held=8))
    ledger.settle()
    assert ledger.ask(ask("a", 8, held=8)).workers == 2
    ledger.ask(ask("a", 8, held=2, occupied=8))
    ledger.ask(ask("a", 8, held=2, occupied=3))
    ledger.settle()
    assert ledger.ask(ask("b", 8, held=2, cost=100.0)).workers in (2, 7)
    ledger.settle()
    assert ledger.ask(ask("b", 8, held=2, cost=100.0)).workers == 7


def test_prices_are_the_policys():
    ledger = Ledger()
    ledger.use(limited(10, stallCosts={"h100": 4.0, "old": 0.25}))
    ledger.ask(ask("new", 8, accelerator="h100"))
    ledger.ask(ask("old", 8, accelerator="old"))
    ledger.settle()
    new, old = (ledger.ask(ask(n, 8, accelerator=a)) for n, a in (("new", "h100"), ("old", "old")))
    assert (new.target, old.target) == (8, 2)
    assert "t/new loses 1500 % more per worker" in old.message


def test_who_is_gone_counts_while_its_pods_leave():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    ledger.ask(ask("a", 9, held=9))
    gone(ledger, "a", 9)
    assert ledger.ask(ask("b", 5)).workers == 0
    gone(ledger, "a", 4)
    ledger.settle()
    assert ledger.ask(ask("b", 5)).workers == 5
    gone(ledger, "a", 0)
    assert [one.inputs for one in ledger.budgets()] == [1]


def test_a_policy_that_goes_frees_all():
    ledger = Ledger()
    ledger.use(limited(2))
    ledger.ask(ask("a", 9))
    ledger.settle()
    assert ledger.ask(ask("a", 9)).workers == 2
    ledger.use(PolicySpec())
    assert ledger.settle() == [("t", "a")]
    assert ledger.ask(ask("a", 9)).workers == 9


LIMIT, NAMES = 12, "abc"


class Some:
    """Three inputs whose looks, starts and drains come in any order."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ledger.use(limited(LIMIT))
        self.wanted, self.held, self.pods = (dict.fromkeys(NAMES, 0) for _ in range(3))

    def look(self, name) -> None:
        """Ask, and write at once, as the operator does."""
        found = ask(name, self.wanted[name], self.held[name], self.pods[name])
        claim = replace(found.claim, least=min(1, self.wanted[name]))
        self.held[name] = self.ledger.ask(replace(found, claim=claim)).workers

    def a_pod(self, name) -> None:
        """One starts, or is gone."""
        if self.pods[name] != self.held[name]:
            self.pods[name] += 1 if self.pods[name] < self.held[name] else -1

    @property
    def all(self) -> int:
        """Pods that there are or are about to be."""
        return sum(max(self.held[one], self.pods[one]) for one in NAMES)


@given(st.data())
def test_no_budget_is_overrun_whatever_comes_first_and_in_the_end_nothing_is_left_over(data):
    some = Some()
    for _ in range(data.draw(st.integers(1, 60))):
        name = data.draw(st.sampled_from(NAMES))
        match data.draw(st.sampled_from(["want", "look", "settle", "pod"])):
            case "want":
                some.wanted[name] = data.draw(st.integers(0, 15))
            case "look":
                some.look(name)
            case "settle":
                some.ledger.settle()
            case _:
                some.a_pod(name)
        assert some.all <= LIMIT
    for _ in range(4):
        for name in NAMES:
            some.look(name)
            some.pods[name] = some.held[name]
            some.look(name)
        if some.ledger.unsettled:
            some.ledger.settle()
    assert sum(some.held.values()) == min(LIMIT, sum(some.wanted.values()))


def test_who_waits_gets_the_place_of_who_is_gone():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.ask(ask("a", 10, held=4))
    gone(ledger, "b", 0)
    ledger.ask(ask("b", 6, held=6))
    ledger.settle()
    gone(ledger, "b", 6)
    ledger.settle()
    assert ledger.ask(ask("a", 10, held=4)).workers == 4
    gone(ledger, "b", 0)
    assert ledger.unsettled
    assert ledger.settle() == [("t", "a")]
    assert ledger.ask(ask("a", 10, held=4)).workers == 10


def test_who_asks_for_another_number_takes_only_that():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    for wanted in (3, 4, 5):
        ledger.ask(ask("a", wanted, held=wanted - 1))
    assert ledger.ask(ask("b", 5)).workers == 5
    assert not ledger.unsettled


def test_a_new_policy_is_weighed():
    ledger = Ledger()
    ledger.ask(ask("a", 9, held=9))
    ledger.settle()
    ledger.use(limited(2))
    assert ledger.unsettled


def test_who_wants_fewer_has_them_at_once_while_others_wait():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.ask(ask("a", 8, held=8))
    ledger.ask(ask("b", 8))
    ledger.settle()
    before = ledger.ask(ask("a", 8, held=8)).workers
    assert ledger.ask(ask("a", before - 2, held=before)).workers == before - 2


def test_what_comes_counts_beside_what_still_leaves():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    assert ledger.ask(ask("a", 5, held=2, occupied=6)).workers == 5, "nine pods, for a while"
    assert ledger.ask(ask("b", 2)).workers == 0
    assert ledger.ask(ask("c", 1)).workers == 1


def test_an_input_that_comes_into_a_full_budget_is_weighed_with_the_others():
    """Its labels changed, and its workers run: there are too many now."""
    ledger = Ledger()
    ledger.use(policy(budgets=[{"name": "a", "selector": {"of": "a"}, "limits": {"workers": 4}}]))
    for name in "ab":
        found = ask(name, 4, held=4)
        ledger.ask(replace(found, labels={"of": name}))
        ledger.ask(replace(found, labels={"of": name}))
    ledger.settle()
    ledger.ask(replace(ask("b", 4, held=4), labels={"of": "a"}))
    assert ledger.unsettled
    ledger.settle()
    assert sum(one.wanted for one in ledger.budgets()) == 8
    grants = [ledger.ask(replace(ask(n, 4, held=4), labels={"of": "a"})) for n in "ab"]
    assert sum(one.workers for one in grants) == 4


def test_workers_that_become_larger_are_weighed():
    ledger = Ledger()
    ledger.use(policy(budgets=[{"name": "all", "limits": {"cpu": "8"}}]))
    ledger.settle()
    assert ledger.ask(ask("a", 8, held=8, worker=(1, 1000, 0))).workers == 8
    assert not ledger.unsettled
    ledger.ask(ask("a", 8, held=8, worker=(1, 4000, 0)))
    assert ledger.unsettled
    ledger.settle()
    assert ledger.ask(ask("a", 8, held=8, worker=(1, 4000, 0))).workers == 2


def test_what_was_granted_elsewhere_is_not_taken_along_into_a_full_budget():
    """Granted, not yet written, and then other labels, or larger workers."""
    ledger = Ledger()
    ledger.use(policy(budgets=[{"name": "a", "selector": {"of": "a"}, "limits": {"workers": 4}}]))
    ledger.ask(replace(ask("full", 4, held=4), labels={"of": "a"}))
    ledger.settle()
    assert ledger.ask(ask("b", 8)).workers == 8
    assert ledger.ask(replace(ask("b", 8), labels={"of": "a"})).workers == 0


def test_what_was_granted_counts_under_a_new_policy_too():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    assert ledger.ask(ask("a", 8)).workers == 8, "and is being written"
    ledger.use(limited(10, stallCosts={"h100": 9.0}))
    ledger.ask(ask("b", 8, cost=100.0))
    ledger.settle()
    assert ledger.ask(ask("b", 8, cost=100.0)).workers == 2


def test_pods_of_an_older_size_count_as_they_are():
    """Four workers of four CPUs become four of one: until the last has gone, they have theirs."""
    ledger = Ledger()
    ledger.use(policy(budgets=[{"name": "all", "limits": {"cpu": "16"}}]))
    ledger.settle()
    small = {"worker": (1, 1000, 0)}
    ledger.ask(ask("a", 4, held=4, worker=(1, 4000, 0)))
    ledger.ask(ask("a", 4, held=4, excess=(0, 12_000, 0), **small))
    assert ledger.budgets()[0].used == (4, 16_000, 0)
    assert ledger.ask(ask("b", 4, **small)).workers == 0
    ledger.settle()
    assert ledger.ask(ask("b", 4, **small)).workers == 0
    ledger.ask(ask("a", 4, held=4, excess=(0, 9000, 0), **small))
    assert ledger.ask(ask("c", 3, **small)).workers == 0, "b waits for what becomes free"
    ledger.settle()
    grants = [ledger.ask(ask("b", 4, **small)), ledger.ask(ask("c", 3, **small))]
    assert sum(one.workers for one in grants) == 3
    ledger.ask(ask("a", 4, held=4, **small))
    ledger.settle()
    assert ledger.ask(ask("b", 4, **small)).workers == 4


def test_what_is_left_of_who_has_no_labels_any_more_counts_wherever_it_may():
    ledger = Ledger()
    budgets = [{"name": "team", "selector": {"of": "a"}, "limits": {"workers": 5}}]
    budgets += [{"name": "else", "namespaces": ["other"], "limits": {"workers": 5}}]
    ledger.use(policy(budgets=budgets))
    ledger.settle()
    gone(ledger, "old", 3)
    assert [one.used[0] for one in ledger.budgets()] == [3, 0]
    assert ledger.ask(replace(ask("new", 5), labels={"of": "a"})).workers == 0
    known = Ledger()
    known.use(policy(budgets=budgets))
    known.settle()
    known.ask(replace(ask("old", 3, held=3), labels={"of": "b"}))
    gone(known, "old", 3)
    assert [one.used[0] for one in known.budgets()] == [0, 0], "its labels are known"


def test_pods_that_may_still_be_made_of_a_larger_number_count():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    ledger.ask(ask("a", 8, held=8, occupied=3))
    lowered = ask("a", 2, held=2, occupied=3)
    ledger.ask(replace(lowered, moving=True))
    assert ledger.ask(ask("b", 3)).workers == 0
    ledger.ask(lowered)
    ledger.settle()
    assert ledger.ask(ask("b", 3)).workers == 3


def test_what_is_the_same_is_not_weighed_again():
    """Weighing tells of the policy, whose look puts it in force: that would go on for ever."""
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.ask(ask("a", 12))
    ledger.settle()
    ledger.use(limited(10))
    ledger.ask(ask("a", 12))
    assert not ledger.unsettled


def test_who_comes_back_under_a_name_has_nothing_of_who_had_it_before():
    ledger = Ledger()
    ledger.use(limited(10))
    ledger.settle()
    assert ledger.ask(ask("a", 8)).workers == 8
    gone(ledger, "a", 0)
    assert ledger.ask(ask("b", 10)).workers == 10
    assert ledger.ask(ask("a", 8)).workers == 0
