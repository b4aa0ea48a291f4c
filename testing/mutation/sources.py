"""Mutate the sources: `python -m testing.mutation.sources sidecar/streams/split_stream.py`.

Each mutant is one small change of a function. The unit tests of the module's folder run first, and
then simulated schedules. A mutant that survives both is printed, unless `equivalent.json` has the
reason why it does not change what is delivered.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from testing.mutation import by_tests, forks
from testing.mutation.mutants import Mutant, apply, functions_of, mutants_of

MODULES = (
    "sidecar/streams/epoch_plan.py",
    "sidecar/streams/partition_reader.py",
    "sidecar/streams/row_slices.py",
    "sidecar/streams/split_stream.py",
    "sidecar/streams/stream_retry.py",
    "sidecar/streams/worker_pool.py",
    "worker/streams/block_producer.py",
    "worker/streams/block_window.py",
    "link/blocks/sender.py",
    "worker/streams/dataset_usage.py",
    "worker/streams/shared_producers.py",
    "worker/streams/split_blocks.py",
    "worker/streams/shared_stream.py",
    "trainer/batch_queue.py",
    "link/trainer/trainer_end.py",
    "trainer/epoch_state.py",
    "trainer/position_log.py",
    "trainer/session.py",
    "order/facts.py",
    "sidecar/steps/epoch_reader.py",
    "sidecar/steps/epoch_steps.py",
    "sidecar/steps/partition_facts.py",
    "sidecar/steps/resume.py",
    "sidecar/steps/step_barrier.py",
    "sidecar/delivery/ack_tracker.py",
    "sidecar/delivery/epoch_run.py",
    "sidecar/delivery/epoch_sequence.py",
    "sidecar/delivery/outbox.py",
    "sidecar/delivery/unit_writer.py",
    "sidecar/inputs/dispatcher_link.py",
)
"""The modules that decide what is delivered."""
_SCHEDULE_SECONDS = 60.0  # time limit of one schedule, which usually takes some 40 ms
EQUIVALENT: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "equivalent.json").read_text()
)
"""Mutants that do not change what is delivered, by module and change, each with the reason."""


def main(argv: Sequence[str] | None = None) -> int:
    """Check the mutants of the selected modules. Return 1 if one survived."""
    parser = argparse.ArgumentParser(prog="python -m testing.mutation.sources", description=__doc__)
    parser.add_argument("modules", nargs="*", help="paths in the package. Default: MODULES")
    parser.add_argument("--sample", type=int, default=0, help="mutants per module. Default: all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample. Default: 0")
    parser.add_argument("--only", default="", help="only mutants whose change matches this regex")
    parser.add_argument("--schedules", type=int, default=100, help="simulated. Default: 100")
    parser.add_argument("--jobs", type=int, default=2, help="processes. Default: 2")
    args = parser.parse_args(argv)
    modules = args.modules or list(MODULES)
    mutants = [
        one
        for module in modules
        for one in _sample(mutants_of(module), args.sample, args.seed)
        if re.search(args.only, one.change)
    ]
    results: dict[Mutant, str] = {}
    for folder in dict.fromkeys(Path(module).parent for module in modules):
        group = [one for one in mutants if Path(one.module).parent == folder]
        if group:
            for mutant, result in by_tests.check(group, args.jobs):
                results[mutant] = "tests" if result != "survived" else ""
                if not results[mutant]:
                    print(f"not by unit tests: {_text(mutant)}", flush=True)
    _known(results)
    rest = [mutant for mutant in mutants if not results[mutant]]
    if rest and args.schedules:
        for mutant, result in _check_by_schedules(rest, args.jobs, args.schedules):
            results[mutant] = "simulation" if result != "survived" else ""
    return _report(modules, results)


def _check_by_schedules(
    mutants: Sequence[Mutant], jobs: int, schedules: int
) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with its result after a number of simulated schedules."""
    from testing.delivery.install import install

    install()
    from testing.delivery.cases import draw
    from testing.delivery.run import collect, simulate
    from testing.delivery.world import scratch

    functions = {module: functions_of(module) for module in {one.module for one in mutants}}

    def is_killed(mutant: Mutant) -> bool:
        apply(mutant, functions[mutant.module])
        for seed in range(schedules):
            forks.limit(_SCHEDULE_SECONDS)
            with scratch() as folder:
                if not simulate(draw(seed), folder).passed:
                    return True
            if seed % 25 == 24:
                collect()
        return False

    yield from forks.check_all(mutants, is_killed, jobs)


def _sample(mutants: Sequence[Mutant], count: int, seed: int) -> Iterable[Mutant]:
    if not count or count >= len(mutants):
        return mutants
    return random.Random(seed).sample(mutants, count)


def _known(results: dict[Mutant, str]) -> None:
    """Mark the equivalent mutants."""
    for mutant, result in results.items():
        if not result and mutant.change in EQUIVALENT.get(mutant.module, ()):
            results[mutant] = "equivalent"


def _text(mutant: Mutant) -> str:
    return f"{mutant.module}:{mutant.line} {mutant.change}"


def _report(modules: Iterable[str], results: dict[Mutant, str]) -> int:
    """Print the survivors and a table. Return 1 if there are survivors."""
    survivors = [mutant for mutant, result in results.items() if not result]
    for mutant in sorted(survivors, key=lambda one: (one.module, one.line)):
        print(f"SURVIVED {_text(mutant)}")
    print("| Module | Mutants | Unit tests | Simulation | Equivalent | Survived |")
    print("|---|---|---|---|---|---|")
    for module in modules:
        count = Counter(result for one, result in results.items() if one.module == module)
        cells = [count["tests"], count["simulation"], count["equivalent"], count[""]]
        print("|", " | ".join(map(str, [f"`{module}`", sum(cells), *cells])), "|")
    return 1 if survivors else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # simulated schedules depend on it
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "testing.mutation.sources", *sys.argv[1:]])
    sys.exit(main())
