"""Traces: the events of a simulation, the same for all policies."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from testing.simulator.world import Conditions, Load


@dataclass(frozen=True)
class Job:
    """One input over time."""

    name: str
    loads: tuple[tuple[float, Load], ...]
    """Start time and load, the first from 0."""
    accelerators: int = 8
    budgets: tuple[str, ...] = ()

    def load(self, time: float) -> Load:
        """Return the load at a time."""
        return [load for start, load in self.loads if start <= time][-1]


@dataclass(frozen=True)
class Trace:
    """Inputs over a period of time."""

    name: str
    about: str
    jobs: tuple[Job, ...]
    seconds: float
    conditions: Conditions = field(default_factory=Conditions)
    limits: dict[str, int] = field(default_factory=dict)
    """Maximum number of workers by budget."""


PAUSED = Load(demand=0.0)


def steps() -> Trace:
    """Return a trace whose dataset becomes four times slower and fast again, twice."""
    slow, quick = Load(rate=50.0), Load(rate=200.0)
    loads = ((0.0, quick), (900.0, slow), (2700.0, quick), (4500.0, slow), (6300.0, quick))
    return Trace("steps", "the dataset becomes 4 times slower, twice", (Job("a", loads),), 7200)


def epochs() -> Trace:
    """Return a trace with a checkpoint every five minutes and an evaluation between epochs."""
    loads: list[tuple[float, Load]] = []
    for epoch in range(6):
        start = 1200.0 * epoch
        for part in range(4):
            at = start + 280 * part
            loads += [(at, Load(2, 600.0)), (at + 260, Load(2, 0.0))]
    return Trace(
        "epochs",
        "pauses of 20 s for checkpoints and 100 s between epochs",
        (Job("a", tuple(loads)),),
        7200,
    )


def waves(seed: int = 3) -> Trace:
    """Return a trace whose cost per row is a random walk, as with a changing augmentation."""
    chance, at, rate, loads = random.Random(seed), 0.0, 100.0, []
    while at < 10800:
        loads.append((at, Load(2, 500.0, rate)))
        at += chance.uniform(200, 900)
        rate = min(300.0, max(40.0, rate * chance.choice((0.4, 0.6, 0.8, 1.25, 1.6, 2.5))))
    return Trace(
        "waves", "what a row costs changes every few minutes", (Job("a", tuple(loads)),), 10800
    )


def spot() -> Trace:
    """Return a constant load on spot nodes: each worker is lost twice an hour."""
    return Trace(
        "spot",
        "constant load, every worker is lost twice an hour",
        (Job("a", ((0.0, Load(2, 600.0)),)),),
        7200,
        Conditions(losses=2.0),
    )


def shared(seed: int = 7) -> Trace:
    """Return twelve jobs of three teams, and one budget for two thirds of what they need."""
    chance, jobs = random.Random(seed), []
    for number in range(12):
        team = ("vision", "speech", "notebooks")[number % 3]
        trainers, accelerators = ((8, 8), (2, 8), (1, 1))[number % 3]
        rate = chance.uniform(60, 200)
        demand = chance.uniform(600, 1800) / trainers
        start, length = chance.uniform(0, 4000), chance.uniform(1800, 6000)
        idle = Load(0, demand, rate)
        busy, slow = Load(trainers, demand, rate), Load(trainers, demand, rate / 2)
        loads = [(0.0, idle), (start, busy), (start + length / 2, slow), (start + length, idle)]
        jobs.append(Job(f"{team}-{number}", tuple(loads), accelerators, ("everything",)))
    return Trace(
        "shared",
        "12 jobs of 1 to 64 accelerators that come and go, a budget of 60 workers",
        tuple(jobs),
        10800,
        limits={"everything": 60},
    )


def all_traces() -> list[Trace]:
    """Return the traces of the table."""
    return [steps(), epochs(), waves(), spot(), shared()]
