"""The turns of all inputs, with completions, failures and changes of leader in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.controller.rollouts import Rollouts
from distributed_input_operator.reconcile.pace import PaceLimit, RolloutState, Turn

WAITING, ROLLING, FAILING, UPDATED = (
    RolloutState.WAITING,
    RolloutState.ROLLING,
    RolloutState.FAILING,
    RolloutState.UPDATED,
)
MOVING = (ROLLING, FAILING)


def keys(count):
    return [("team", f"i{number}") for number in range(count)]


class World:
    """The states in a cluster, which leaders see one input at a time."""

    def __init__(self, count, limit):
        self.limit = limit
        self.states = dict.fromkeys(keys(count), WAITING)
        self.lead()

    def lead(self):
        """Start a leader without memory."""
        self.rollouts = Rollouts(self.limit)
        self.rollouts.expect(self.states)

    def reconcile(self, key):
        turn = self.rollouts.request(key, self.states[key])
        if self.states[key] is WAITING and turn is Turn.START:
            self.states[key] = ROLLING
        return turn

    def progress(self, state):
        """Give the first input that rolls its last state."""
        rolling = [key for key, one in self.states.items() if one is ROLLING]
        if rolling:
            self.states[rolling[0]] = state
            self.reconcile(rolling[0])
        return bool(rolling)

    def start_next(self):
        for key in self.rollouts.next():
            self.reconcile(key)

    def run_to_the_end(self):
        """Complete what rolls or starts, without another failure."""
        for key in sorted(self.states):
            self.reconcile(key)
        self.start_next()
        while self.progress(UPDATED):
            self.start_next()

    def moving(self):
        return [key for key, one in self.states.items() if one in MOVING]


@pytest.mark.slow
@given(
    st.integers(1, 30),
    st.builds(PaceLimit, st.integers(1, 100), st.booleans()),
    st.integers(0, 100),
    st.data(),
)
def test_the_limit_holds_and_the_rollout_ends_or_stops(count, limit, failing_percent, data):
    world = World(count, limit)
    for _ in range(6 * count + 20):
        event = data.draw(st.sampled_from(["leader", "reconcile", "progress", "next"]))
        if event == "leader":
            world.lead()
        elif event == "reconcile":
            world.reconcile(data.draw(st.sampled_from(sorted(world.states))))
        elif event == "progress":
            world.progress(FAILING if data.draw(st.integers(0, 99)) < failing_percent else UPDATED)
        else:
            world.start_next()
        assert len(world.moving()) <= limit.inputs(count)
    world.run_to_the_end()
    left = [key for key, one in world.states.items() if one is WAITING]
    if left:
        assert world.rollouts.counts[FAILING] > 0
        assert world.reconcile(left[0]) is Turn.STOPPED


def test_the_first_failure_stops_the_others():
    world = World(20, PaceLimit(100))
    for key in keys(20):
        world.reconcile(key)
    (first,) = world.moving() or world.rollouts.next()
    world.reconcile(first)
    world.states[first] = FAILING
    world.reconcile(first)
    turns = [world.reconcile(key) for key in keys(20) if key != first]
    assert set(turns) == {Turn.STOPPED}
    assert world.rollouts.next() == []


def test_a_new_leader_starts_nothing_before_it_has_seen_every_input():
    world = World(3, PaceLimit(3, is_percentage=False))
    first, second, third = keys(3)
    assert world.reconcile(first) is Turn.WAIT
    world.rollouts.end(second, failed=True)  # Its reconciliation failed.
    assert world.rollouts.next() == []
    world.states[third] = ROLLING
    world.reconcile(third)
    assert world.rollouts.next() == []  # The third input holds the only slot.
    world.states[third] = UPDATED
    world.reconcile(third)
    assert world.rollouts.next() == [first]


def test_a_deleted_input_frees_its_slot():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, second = keys(2)
    assert rollouts.request(first, WAITING) is Turn.START
    assert rollouts.request(second, WAITING) is Turn.WAIT
    rollouts.forget(first)
    assert rollouts.next() == [second]


def test_an_input_that_another_change_replaces_takes_no_slot():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, second = keys(2)
    assert rollouts.request(first, RolloutState.BUSY) is Turn.FOLLOW
    assert rollouts.next() == []
    assert rollouts.request(second, WAITING) is Turn.START


def test_other_changes_do_not_wait():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, second = keys(2)
    rollouts.request(first, FAILING)
    assert rollouts.request(second, RolloutState.SETTLED) is Turn.START


def test_an_input_that_fails_before_its_request_is_not_called_again():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, second, third = keys(3)
    for key, state in ((first, ROLLING), (second, WAITING), (third, WAITING)):
        rollouts.request(key, state)
        rollouts.end(key, failed=False)
    rollouts.forget(first)
    assert rollouts.next() == [second]
    assert rollouts.next() == [], "the slot is reserved"
    rollouts.end(second, failed=True)
    assert rollouts.next() == [third]
    assert rollouts.request(third, WAITING) is Turn.START


def test_a_failed_input_waits_for_its_retry():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, second = keys(2)
    rollouts.request(first, ROLLING)
    assert rollouts.request(second, WAITING) is Turn.WAIT
    rollouts.end(second, failed=True)
    rollouts.request(first, UPDATED)
    assert rollouts.next() == []
    assert rollouts.request(second, WAITING) is Turn.START


def test_a_failure_does_not_give_up_a_slot():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, second = keys(2)
    assert rollouts.request(first, WAITING) is Turn.START
    rollouts.end(first, failed=True)
    rollouts.end(first, failed=True)  # It was not even observed.
    assert rollouts.request(second, WAITING) is Turn.WAIT


def test_inputs_that_lack_pods_start_last():
    rollouts = Rollouts(PaceLimit(1, is_percentage=False))
    first, impaired, healthy = keys(3)
    rollouts.expect([first])
    assert rollouts.request(impaired, WAITING, healthy=False) is Turn.WAIT
    assert rollouts.request(healthy, WAITING) is Turn.WAIT
    rollouts.request(first, UPDATED)
    assert rollouts.request(impaired, WAITING, healthy=False) is Turn.WAIT
    assert rollouts.next() == [healthy]
    assert rollouts.request(impaired, WAITING, healthy=False) is Turn.WAIT, "it is reserved"
    assert rollouts.request(healthy, WAITING) is Turn.START
    rollouts.request(healthy, UPDATED)
    assert rollouts.next() == [impaired]
    assert rollouts.request(impaired, WAITING, healthy=False) is Turn.START


@given(
    st.lists(
        st.tuples(
            st.sampled_from(keys(5)),
            st.sampled_from([*RolloutState, "forget", "end", "fail", "next"]),
            st.booleans(),
        )
    )
)
def test_the_counts_are_those_of_the_states(events):
    rollouts = Rollouts(PaceLimit(3, is_percentage=False))
    for key, event, healthy in events:
        if isinstance(event, RolloutState):
            rollouts.request(key, event, healthy=healthy)
        elif event == "forget":
            rollouts.forget(key)
        elif event == "next":
            rollouts.next()
        else:
            rollouts.end(key, failed=event == "fail")
        states = {one: rollouts.state(one) for one in keys(5)}
        for state in RolloutState:
            if state is not RolloutState.SETTLED:
                assert rollouts.counts.get(state, 0) == list(states.values()).count(state)
