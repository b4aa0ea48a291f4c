"""One trainer's position restores all, in other numbers, to the very same rows."""

from __future__ import annotations

import pytest

from testing.chaos.restores import STATE_BYTES, Case, restore
from testing.processes.forks import Forks


@pytest.mark.parametrize("after", [2, 4, 8])
def test_the_rest_of_an_epoch_is_the_same_for_any_number_of_trainers(
    after: int, forks: Forks
) -> None:
    found = restore(Case(4, after, rows=12, sleep_ms=0.3), forks)
    assert found.same_steps
    assert (found.lost, found.repeated) == (0, 0)
    assert found.identical is (True if after == 4 else None)
    assert 0 < found.state_bytes <= STATE_BYTES


# Partitions of 0 to 81 rows: towards the end fewer and fewer have any, and one trainer none.
UNEVEN = (40, 3, 0, 9, 17, 1, 41, 0, 2, 30, 5, 0, 11, 24, 7, 0)


@pytest.mark.parametrize("at", [0.6, 0.85, 0.999])
@pytest.mark.parametrize(("after", "workers"), [(2, 3), (4, 1), (8, 2)])
def test_the_tail_of_an_epoch_comes_once_on_other_trainers_and_workers(
    after: int, workers: int, at: float, forks: Forks
) -> None:
    """Where some partitions have run out, and in the very last step.

    On as many trainers it is the same bytes. On others the steps differ there: where a partition
    has run out its trainer goes on with its others, which depend on how many trainers there are.
    """
    case = Case(4, after, splits=len(UNEVEN), rows=UNEVEN, sleep_ms=0.3, workers=workers)
    found = restore(case, forks, at)
    assert (found.lost, found.repeated) == (0, 0)
    assert found.identical is (True if after == 4 else None)


def test_a_position_that_is_a_step_behind_is_found_out(forks: Forks) -> None:
    case = Case(2, 2, rows=12, sleep_ms=0.0)
    found = restore(case, forks, mutants={"sidecar": "position_one_step_early"})
    assert not found.same_steps
    assert found.repeated
