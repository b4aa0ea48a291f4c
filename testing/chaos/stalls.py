"""How long a trainer waits when a part dies: `python -m testing.chaos.stalls`.

One trainer with steps of 20 ms, workers that keep up with it. In each run one part is killed
mid-epoch; the wait is the longest that any step waited for its batch from then on. What making
rows again took is told apart: the worst split's rows times the time that a row takes.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from testing.chaos.document import write_section
from testing.chaos.run import Outcome, run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.chaos.table import quantile, stalls_of
from testing.processes.forks import Forks

_STEPS = 100
# A split is several times what the queues hold, so that there is something to make again.
_DATA = Data(rows=(200,) * 8, row_bytes=30_000, sleep_ms=1.0)
_BASE = Schedule(
    0, Topology(partitions=4, batch=16, ring_steps=3), _DATA, save_every=10, step_ms=20
)
CASES: dict[str, Fault] = {
    "a worker is killed, another lives, a third comes": Fault("kill_worker", 0, seconds=1.0),
    "a worker is stopped for good (no answer, no reset)": Fault(
        "stop_worker", 0, seconds=30.0, then_kill=True
    ),
    "a worker is told to leave (SIGTERM)": Fault("drain_worker", 0, seconds=0.0),
    "the dispatcher is killed, comes back empty after 1 s": Fault(
        "kill_dispatcher", 0, seconds=1.0
    ),
    "the sidecar is killed, comes back after 0.5 s": Fault("kill_sidecar", 0, seconds=0.5),
    "nothing": Fault("add_worker", 10 * _STEPS),
}


def measure(fault: Fault, forks: Forks, runs: int, at_once: int) -> list[Outcome]:
    """So many runs, each with the fault at a step of its own."""
    dice = random.Random(0)
    made = [
        replace(
            _BASE,
            seed=i,
            faults=(replace(fault, step=fault.step or dice.randrange(10, _STEPS - 20), target=i),),
        )
        for i in range(runs)
    ]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda schedule: run(schedule, forks), made))


def row(told: str, outcomes: Sequence[Outcome]) -> str:
    """A line of the table."""
    waits, replays = [], []
    for outcome in outcomes:
        found = stalls_of(outcome) or [("", max(s for _, s in outcome.steps[5:]), 0)]
        waits.append(max(seconds for _, seconds, _ in found))
        replays.append(max(rows for _, _, rows in found) * _DATA.sleep_ms / 1000)
    bad = sum(not outcome.good for outcome in outcomes)
    return (
        f"| {told} | {len(outcomes)} "
        f"| {quantile(waits, 0.5):.2f} s | {quantile(waits, 0.99):.2f} s "
        f"| {quantile(replays, 0.5):.2f} s | {quantile(replays, 0.99):.2f} s | {bad} |"
    )


def main() -> int:
    """Print the table, or write it into a document."""
    parser = argparse.ArgumentParser(prog="python -m testing.chaos.stalls", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each case")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time")
    parser.add_argument("--case", default="", help="part of a case's name: only those")
    parser.add_argument("--out", type=Path, help="Markdown file whose section is replaced")
    args = parser.parse_args()
    lines = [
        "| what happens | runs | wait p50 | p99 | of it making rows again, p50 | p99 | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    with Forks() as forks:
        for told, fault in CASES.items():
            if args.case in told:
                outcomes = measure(fault, forks, args.runs, args.jobs)
                lines.append(row(told, outcomes))
                print(lines[-1], flush=True)
                for outcome in outcomes:
                    if not outcome.good:
                        print("  ", outcome.problems[:2], file=sys.stderr)
    if args.out:
        write_section(args.out, "stalls", "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
