"""How long a trainer waits after a fault: `python -m testing.chaos.measurements.stalls`.

One trainer with steps of 20 ms and workers that keep up with it. Each run applies one fault in the
middle of an epoch. The wait is the longest wait of any later step for its batch. The replay is the
longest time that a stream needed to compute its earlier rows again.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from testing.chaos.measurements import document
from testing.chaos.run import Outcome, run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.chaos.summary import quantile, stalls_of
from testing.processes.forks import Forks

_STEPS = 100
# A split has several times the rows that the queues hold, so that a replay is needed.
_DATA = Data(rows=(200,) * 8, row_bytes=30_000, sleep_ms=1.0)
_BASE = Schedule(
    0, Topology(partitions=4, batch=16, ring_steps=3), _DATA, save_every=10, step_ms=20
)
CASES: dict[str, Fault] = {
    "worker killed; another serves, a third starts after 1 s": Fault("kill_worker", 0, seconds=1.0),
    "worker stopped (no answer, no reset)": Fault("stop_worker", 0, seconds=30.0, then_kill=True),
    "worker drained (SIGTERM)": Fault("drain_worker", 0, seconds=0.0),
    "dispatcher killed; starts empty after 1 s": Fault("kill_dispatcher", 0, seconds=1.0),
    "sidecar killed; starts after 0.5 s": Fault("kill_sidecar", 0, seconds=0.5),
    "no fault": Fault("add_worker", 10 * _STEPS),
}


def measure(fault: Fault, forks: Forks, runs: int, at_once: int) -> list[Outcome]:
    """Run the fault `runs` times, each time at another step."""
    dice = random.Random(0)
    schedules = [
        replace(
            _BASE,
            seed=i,
            faults=(replace(fault, step=fault.step or dice.randrange(10, _STEPS - 20), target=i),),
        )
        for i in range(runs)
    ]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda schedule: run(schedule, forks), schedules))


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return a line of the table."""
    waits, replays = [], []
    for outcome in outcomes:
        found = stalls_of(outcome) or [("", max(s for _, s in outcome.steps[5:]), 0)]
        waits.append(max(seconds for _, seconds, _ in found))
        replays.append(max(rows for _, _, rows in found) * _DATA.sleep_ms / 1000)
    failed = sum(not outcome.passed for outcome in outcomes)
    return (
        f"| {name} | {len(outcomes)} "
        f"| {quantile(waits, 0.5):.2f} s | {quantile(waits, 0.99):.2f} s "
        f"| {quantile(replays, 0.5):.2f} s | {quantile(replays, 0.99):.2f} s | {failed} |"
    )


def main() -> int:
    """Measure all cases; print the table or write it into a document."""
    parser = document.parser("stalls", __doc__, runs=20)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once. Default: 2")
    parser.add_argument("--case", default="", help="part of a case's name; run only these cases")
    args = parser.parse_args()
    lines = [
        "| Fault | Runs | Wait p50 | Wait p99 | Replay p50 | Replay p99 | Failed |",
        "|---|---|---|---|---|---|---|",
    ]
    with Forks() as forks:
        for name, fault in CASES.items():
            if args.case in name:
                outcomes = measure(fault, forks, args.runs, args.jobs)
                lines.append(row(name, outcomes))
                print(lines[-1], flush=True)
                for outcome in outcomes:
                    if not outcome.passed:
                        print("  ", outcome.problems[:2], file=sys.stderr)
    if args.out:
        document.write_section(args.out, "stalls", "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
