"""Fixed seeded schedules of faults; `make chaos` runs more."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from testing.chaos.__main__ import describe
from testing.chaos.draw import draw
from testing.chaos.run import Outcome, run
from testing.chaos.summary import summary, table
from testing.processes.forks import Forks

SEEDS = range(36)
REGRESSION_SEEDS = (47, 76, 129, 202, 219, 352, 521, 613, 1155, 1206)
"""More seeds: their schedules once failed because of a bug."""
AT_ONCE = max(3, len(os.sched_getaffinity(0)))
"""Schedules that run at once; a schedule waits most of the time."""


@pytest.fixture(scope="module")
def outcomes(forks: Forks) -> dict[int, Outcome]:
    """Run all schedules, several at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = pool.map(lambda seed: run(draw(seed), forks), [*SEEDS, *REGRESSION_SEEDS])
        return {outcome.schedule.seed: outcome for outcome in done}


@pytest.mark.parametrize("seed", [*SEEDS, *REGRESSION_SEEDS])
def test_every_row_arrives_once_and_in_order_after_faults(
    seed: int, outcomes: dict[int, Outcome]
) -> None:
    outcome = outcomes[seed]
    assert outcome.passed, describe(outcome)


def test_the_schedules_apply_nearly_every_kind_of_fault(outcomes: dict[int, Outcome]) -> None:
    found = summary(outcomes.values())
    print(table(found, sum(outcome.seconds for outcome in outcomes.values())))
    assert found["epochs"] >= len(outcomes)
    assert len(found["faults"]) >= 10, "too few kinds of faults were applied"


def test_some_schedules_have_a_mixture_whose_weights_change() -> None:
    topologies = [draw(seed).topology for seed in SEEDS]
    assert sum(bool(one.weights) for one in topologies) >= 5
    assert sum(bool(one.changes) for one in topologies) >= 5
    assert not any(draw(seed).topology.weights for seed in REGRESSION_SEEDS)


def test_a_seed_determines_its_schedule() -> None:
    assert draw(7) == draw(7)
    assert len({str(draw(seed)) for seed in range(200)}) == 200
