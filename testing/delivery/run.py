"""The simulation of one schedule, from the first process to the verdict."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from distributed_input.trainer import progress
from testing.chaos.ledger import Verdict
from testing.delivery.cases import judge
from testing.delivery.events import schedule_events
from testing.delivery.loops import JobLoops
from testing.delivery.schedule import Delivery
from testing.delivery.training import Training
from testing.delivery.virtual.primitives import SimTime
from testing.delivery.virtual.scheduler import START, Deadlock, Scheduler, TimedOut
from testing.delivery.world import World

_RING_SECONDS = 8.0
_MAX_SECONDS = 900.0
_MOST_REOPENED = 200  # more show that streams are opened again without a back-off
_REOPENED_PER_SECOND = 50


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
    scheduler = Scheduler(
        delivery.seed, delivery.preempt, delivery.stall, trace, max_seconds=_MAX_SECONDS
    )
    if stacks_at:
        scheduler.after(stacks_at, lambda: scheduler.note(None, f"stacks\n{scheduler.stacks()}"))
    outcome = Outcome(delivery.seed)
    run = _Run(World(scheduler, delivery, folder), outcome)
    try:
        scheduler.run(lambda: not run.unfinished)
    except (Deadlock, TimedOut) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    run.record_problems()
    scheduler.close()
    return outcome


class _Run:
    """The training loops of all jobs.

    Attributes:
        unfinished: number of jobs whose loop runs; 0 at the end.
    """

    def __init__(self, world: World, outcome: Outcome) -> None:
        self.unfinished = 1
        self._world, self._outcome = world, outcome
        self._trainings: list[Training] = []
        world.driver.spawn(self._drive, "drive")

    def _drive(self) -> None:
        world = self._world
        try:
            world.start()
            jobs = [JobLoops(world) for _ in range(world.schedule.topology.jobs)]
            readers = range(world.delivery.readers)
            self._trainings = [
                Training(world, number, job) for number, job in enumerate(jobs) for _ in readers
            ]
            self.unfinished = len(self._trainings)
            schedule_events(world, jobs[0])
            for training in self._trainings[1:]:
                world.driver.spawn(partial(self._train, training), "training")
        except BaseException:
            self.unfinished = 0
            raise
        self._train(self._trainings[0])

    def _train(self, training: Training) -> None:
        training.run()
        is_last = self.unfinished == 1
        if is_last and not any(each.problems for each in self._trainings):
            _check_rings(self._world, self._outcome)
        self.unfinished -= 1

    def record_problems(self) -> None:
        """Write the results into the outcome."""
        outcome, scheduler = self._outcome, self._world.scheduler
        outcome.hash, outcome.switches = scheduler.hash, scheduler.switches
        outcome.seconds = scheduler.now - START
        for training in self._trainings:
            outcome.problems += training.problems
            outcome.verdict.add(training.ledger.close())
        verdict = outcome.verdict
        outcome.problems += [*scheduler.problems, *verdict.violations]
        if verdict.lost or verdict.repeated or verdict.damaged:
            outcome.problems.append(
                f"lost {verdict.lost}, repeated {verdict.repeated}, damaged {verdict.damaged}"
            )
        if self._world.reopened > _MOST_REOPENED + _REOPENED_PER_SECOND * outcome.seconds:
            outcome.problems.append(f"streams were opened again {self._world.reopened} times")
        case = self._world.delivery.case
        outcome.problems = judge(case, outcome.problems, outcome.seconds)


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
    progress._totals.clear()  # one for each trainer
    gc.collect()
