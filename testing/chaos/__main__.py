"""`python -m testing.chaos`: run schedules, print what came of them."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testing.chaos.draw import draw
from testing.chaos.run import Outcome, run
from testing.chaos.table import summary, table
from testing.processes.forks import Forks


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m testing.chaos", description=__doc__)
    made.add_argument("--n", type=int, default=40, help="schedules to run")
    made.add_argument("--seed", type=int, default=0, help="of the first; the next has the next")
    made.add_argument("--seeds", help="comma-separated, instead of --n and --seed")
    made.add_argument("--slice", default="0/1", metavar="I/K", help="every K-th, from the I-th on")
    made.add_argument("--jobs", type=int, default=4, help="schedules at the same time: most wait")
    made.add_argument("--json", type=Path, help="file for the summary")
    made.add_argument("--show", action="store_true", help="print the schedules, run none")
    made.add_argument("--verbose", action="store_true", help="print what was applied")
    return made


def _seeds(args: argparse.Namespace) -> list[int]:
    index, _, count = args.slice.partition("/")
    seeds = range(args.seed, args.seed + args.n)
    return [*(map(int, args.seeds.split(",")) if args.seeds else seeds)][int(index) :: int(count)]


def told(outcome: Outcome, number: str = "", verbose: bool = True) -> str:
    """An outcome for people."""
    verdict = outcome.verdict
    kinds = " ".join(applied.kind for applied in outcome.applied) or "no fault came to pass"
    lines = [
        f"{number} seed {outcome.schedule.seed}: {'ok' if outcome.good else 'FAILED'} "
        f"{outcome.seconds:.1f} s, {verdict.epochs} epochs, {verdict.received} rows; {kinds}"
    ]
    if verbose or not outcome.good:
        lines += [f"    {a.kind}: {a.note}" for a in outcome.applied]
    if not outcome.good:
        lines += [f"  {line}" for line in str(outcome.schedule).splitlines()]
        lines.append(
            f"  lost {verdict.lost}, repeated {verdict.repeated}, damaged {verdict.damaged}"
        )
        lines += [f"  - {problem}" for problem in outcome.problems]
        lines.append(f"  again: python -m testing.chaos --n 1 --seed {outcome.schedule.seed}")
        lines.append(f"  logs: {outcome.folder}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 where every schedule held."""
    args = _parser().parse_args(argv)
    seeds = _seeds(args)
    if args.show:
        print("\n".join(str(draw(seed)) for seed in seeds))
        return 0
    began = time.monotonic()
    outcomes: list[Outcome] = []
    lock = threading.Lock()
    with Forks() as forks, ThreadPoolExecutor(args.jobs) as pool:

        def one(seed: int) -> None:
            outcome = run(draw(seed), forks)
            with lock:
                outcomes.append(outcome)
                number = f"[{len(outcomes)}/{len(seeds)}]"
                print(told(outcome, number, args.verbose), flush=True)

        list(pool.map(one, seeds))
    found = summary(outcomes)
    print(table(found, time.monotonic() - began))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
