"""Steps computed again from positions are those that trainers got under faults, bit for bit."""

from __future__ import annotations

import pytest

from testing.chaos.replay import KINDS, Compared, compare, deliver, schedule_of
from testing.processes.forks import Forks


@pytest.mark.parametrize("seed", [KINDS.index("mixed"), KINDS.index("packed")])
def test_replayed_steps_are_those_that_were_delivered(seed: int, forks: Forks) -> None:
    _, schedule, sections = schedule_of(seed)
    outcome, delivered = deliver(schedule, sections, forks)
    assert outcome.passed, outcome.problems
    assert len(outcome.applied) == len(schedule.faults)
    found = Compared()
    compare(schedule, sections, delivered, 4, found)
    assert not found.differences
    assert found.steps == 4
    # Rows of another step are found.
    delivered.units = {
        (epoch, step): delivered.units.get((epoch, step + 1), units)
        for (epoch, step), units in delivered.units.items()
    }
    compare(schedule, sections, delivered, 2, found)
    assert len(found.differences) >= 2
