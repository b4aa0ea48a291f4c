"""One trainer's position restores all, in other numbers, to the very same rows."""

from __future__ import annotations

import pytest

from tests.chaos.forks import Forks
from tests.chaos.restores import STATE_BYTES, Case, restore


@pytest.mark.parametrize("after", [2, 4, 8])
def test_the_rest_of_an_epoch_is_the_same_for_any_number_of_trainers(
    after: int, forks: Forks
) -> None:
    found = restore(Case(4, after, rows=12, sleep_ms=0.3), forks)
    assert found.same_steps
    assert (found.lost, found.repeated) == (0, 0)
    assert found.identical is (True if after == 4 else None)
    assert 0 < found.state_bytes <= STATE_BYTES


def test_a_position_that_is_a_step_behind_is_found_out(forks: Forks) -> None:
    case = Case(2, 2, rows=12, sleep_ms=0.0)
    found = restore(case, forks, mutants={"sidecar": "position_one_step_early"})
    assert not found.same_steps
    assert found.repeated
