"""Checks of mutants by the simulated delivery, in forks of a process that only simulates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testing.mutation import forks
from testing.mutation.mutants import Mutant, apply, functions_of

_SECONDS = 60.0  # time limit of one schedule, which usually takes some 40 ms


def check(mutants: Sequence[Mutant], jobs: int, schedules: int) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with its result after a number of schedules."""
    from testing.delivery.install import install

    install()
    from testing.delivery.cases import draw
    from testing.delivery.run import collect, simulate
    from testing.delivery.world import scratch

    functions = {module: functions_of(module) for module in {one.module for one in mutants}}

    def is_killed(mutant: Mutant) -> bool:
        apply(mutant, functions[mutant.module])
        for seed in range(schedules):
            forks.limit(_SECONDS)
            with scratch() as folder:
                if not simulate(draw(seed), folder).passed:
                    return True
            if seed % 25 == 24:
                collect()
        return False

    yield from forks.check_all(mutants, is_killed, jobs)
