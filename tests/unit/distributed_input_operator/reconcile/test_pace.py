"""The pace of the operator's templates: bounded, stopped by failures, complete without them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.reconcile.pace import (
    PaceLimit,
    RolloutState,
    free_slots,
    is_stopped,
    parse_limit,
    slots,
)

limits = st.builds(PaceLimit, st.integers(1, 100), st.booleans())
counts = st.dictionaries(st.sampled_from(RolloutState), st.integers(0, 1000))


@given(counts, limits)
def test_there_is_a_slot_and_never_more_than_the_limit(found, limit):
    total = sum(found.values())
    assert 1 <= slots(found, limit) <= limit.inputs(total)
    if limit.is_percentage:
        assert limit.inputs(total) <= max(1, total * limit.value / 100)


@given(counts, limits)
def test_inputs_that_fail_hold_their_slots(found, limit):
    moving = found.get(RolloutState.ROLLING, 0) + found.get(RolloutState.FAILING, 0)
    assert free_slots(found, limit) == max(0, slots(found, limit) - moving)
    if is_stopped(found, limit):
        assert free_slots(found, limit) == 0


@given(counts, limits)
def test_more_updated_inputs_never_leave_fewer_slots(found, limit):
    more = Counter(found) + Counter({RolloutState.UPDATED: 1})
    assert slots(more, limit) >= slots(found, limit)


def test_the_first_input_goes_alone_and_the_number_doubles():
    limit, found, batches = PaceLimit(10), Counter({RolloutState.WAITING: 100}), []
    while found[RolloutState.WAITING]:
        batch = min(free_slots(found, limit), found[RolloutState.WAITING])
        batches.append(batch)
        found[RolloutState.WAITING] -= batch
        found[RolloutState.UPDATED] += batch
    assert batches[:6] == [1, 1, 2, 4, 8, 10]
    assert max(batches) == 10
    assert sum(batches) == 100


def test_limits_as_text():
    assert parse_limit("10%").inputs(200) == 20
    assert parse_limit("10%").inputs(3) == 1
    assert parse_limit("7").inputs(200) == 7


@pytest.mark.parametrize("text", ["0", "0%", "101%", "ten", "-1", "5 %", "1.5", ""])
def test_other_limits_are_refused(text):
    with pytest.raises(ValueError, match="use a number of inputs, or 1% to 100%"):
        parse_limit(text)
