"""A few dozen schedules of faults, the same ones every time; `make chaos` runs more."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from testing.chaos.__main__ import told
from testing.chaos.draw import draw
from testing.chaos.run import Outcome, run
from testing.chaos.table import summary, table
from testing.processes.forks import Forks

SEEDS = range(36)
FOUND_BUGS = (47, 76, 129, 202, 219, 352, 521, 613, 1155, 1206)
"""Seeds beyond those that once failed for a reason worth keeping."""
AT_ONCE = max(3, len(os.sched_getaffinity(0)))
"""Most of a schedule is waiting."""


@pytest.fixture(scope="module")
def outcomes(forks: Forks) -> dict[int, Outcome]:
    """All schedules, several at the same time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(lambda seed: run(draw(seed), forks), [*SEEDS, *FOUND_BUGS])
        return {outcome.schedule.seed: outcome for outcome in done}


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND_BUGS])
def test_every_row_comes_once_and_in_its_order_whatever_dies(
    seed: int, outcomes: dict[int, Outcome]
) -> None:
    outcome = outcomes[seed]
    assert outcome.good, told(outcome)


def test_the_schedules_are_worth_their_time(outcomes: dict[int, Outcome]) -> None:
    found = summary(outcomes.values())
    print(table(found, sum(outcome.seconds for outcome in outcomes.values())))
    assert found["epochs"] >= len(outcomes)
    assert len(found["faults"]) >= 10, "some kind of fault never came to pass"


def test_a_seed_is_a_schedule() -> None:
    assert draw(7) == draw(7)
    assert len({str(draw(seed)) for seed in range(200)}) == 200
