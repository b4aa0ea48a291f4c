"""The simulation of one schedule, from the first process to the verdict."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from testing.chaos.ledger import Verdict
from testing.delivery.events import schedule_events
from testing.delivery.primitives import SimTime
from testing.delivery.schedule import Delivery
from testing.delivery.scheduler import Deadlock, Scheduler, TimedOut
from testing.delivery.training import Training
from testing.delivery.world import World

_RING_SECONDS = 8.0
_MAX_SECONDS = 900.0


@dataclass
class Outcome:
    """The result of a schedule.

    Attributes:
        problems: descriptions of everything that went wrong; empty if the schedule passed.
        hash: depends on every switch; equal seeds have equal hashes.
        switches: number of switches between tasks.
        seconds: virtual time.
    """

    seed: int
    problems: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    hash: int = 0
    switches: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


def simulate(
    delivery: Delivery,
    folder: Path,
    trace: Callable[[str], None] | None = None,
    stacks_at: float = 0.0,
) -> Outcome:
    """Run a schedule in virtual time. Errors of the product go into the outcome.

    Args:
        delivery: the schedule.
        folder: empty folder for the sidecars' files.
        trace: receives the lines of the event trace.
        stacks_at: virtual second at which the trace shows where all tasks wait; 0: never.
    """
    outcome = Outcome(delivery.seed)
    scheduler = Scheduler(
        delivery.seed, delivery.preempt, delivery.stall, trace, max_seconds=_MAX_SECONDS
    )
    world = World(scheduler, delivery, folder)
    trainings: list[Training] = []
    driver = world.driver
    left = 1

    def drive() -> None:
        nonlocal left
        try:
            world.start()
            for number in range(delivery.schedule.topology.jobs):
                trainings.append(Training(world, number))
            left += len(trainings) - 1
            schedule_events(world, trainings[0])
            for training in trainings[1:]:
                driver.spawn(partial(one, training), "training")
        except BaseException:
            left = 0
            raise
        one(trainings[0])

    def one(training: Training) -> None:
        nonlocal left
        training.run()
        left -= 1
        if not left and not any(t.problems for t in trainings):
            left = 1
            _check_rings(world, outcome)
            left = 0

    driver.spawn(drive, "drive")
    if stacks_at:
        scheduler.after(stacks_at, lambda: scheduler.note(None, f"stacks\n{scheduler.stacks()}"))
    try:
        scheduler.run(lambda: left <= 0)
    except (Deadlock, TimedOut) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    for training in trainings:
        outcome.problems += training.problems
        outcome.verdict.add(training.ledger.close())
    verdict = outcome.verdict
    outcome.problems += [*scheduler.problems, *verdict.violations]
    if verdict.lost or verdict.repeated or verdict.damaged:
        outcome.problems.append(
            f"lost {verdict.lost}, repeated {verdict.repeated}, damaged {verdict.damaged}"
        )
    if delivery.case == "flaky":
        outcome.problems = _flaky_problems(outcome.problems)
    outcome.hash, outcome.switches = scheduler.hash, scheduler.switches
    outcome.seconds = scheduler.now - 1000
    scheduler.close()
    return outcome


def _flaky_problems(problems: list[str]) -> list[str]:
    """Return the problems of a dataset without an order: lost or repeated rows without an error."""
    if any("ReplayError" in problem for problem in problems):
        return []
    return [problem for problem in problems if "got rows" not in problem]


def _check_rings(world: World, outcome: Outcome) -> None:
    """Report a problem unless all slots become free after the last batch is released."""
    waited = 0.0
    while True:
        used = [
            job.slots.used
            for part in world.sidecars
            if part.alive and part.registry is not None
            for job in part.registry.all()
        ]
        if not any(used):
            return
        if waited > _RING_SECONDS:
            outcome.problems.append(f"slots are still in use after the end: {used}")
            return
        SimTime.sleep(0.2)
        waited += 0.2 if not any(part.process.paused for part in world.sidecars) else 0.0


def collect() -> None:
    """Free what the last simulations left. The collector is off while they run."""
    gc.collect()
