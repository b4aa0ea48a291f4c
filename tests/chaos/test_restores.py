"""One trainer's position restores any number of trainers to exactly the same rows."""

from __future__ import annotations

import pytest

from testing.chaos.measurements.restores import STATE_BYTES, Case, restore
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


# Partitions of 0 to 81 rows. Near the end most of them are empty, and one trainer has no rows.
UNEVEN = (40, 3, 0, 9, 17, 1, 41, 0, 2, 30, 5, 0, 11, 24, 7, 0)


@pytest.mark.parametrize("at", [0.6, 0.85, 0.999])
@pytest.mark.parametrize(("after", "workers"), [(2, 3), (4, 1), (8, 2)])
def test_the_end_of_an_epoch_is_read_once_by_other_trainers_and_workers(
    after: int, workers: int, at: float, forks: Forks
) -> None:
    """Restore where some partitions are empty, and in the last step.

    The same number of trainers gets the same bytes. For other numbers the steps differ here: when a
    partition is empty, its trainer continues with its other partitions, and these depend on the
    number of trainers.
    """
    case = Case(4, after, splits=len(UNEVEN), rows=UNEVEN, sleep_ms=0.3, workers=workers)
    found = restore(case, forks, at)
    assert (found.lost, found.repeated) == (0, 0)
    assert found.identical is (True if after == 4 else None)


def test_a_position_that_is_one_step_early_is_detected(forks: Forks) -> None:
    case = Case(2, 2, rows=12, sleep_ms=0.0)
    found = restore(case, forks, mutants={"sidecar": "position_one_step_early"})
    assert not found.same_steps
    assert found.repeated
