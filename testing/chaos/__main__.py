"""Run seeded schedules of faults and print the results: `python -m testing.chaos`."""

from __future__ import annotations

import argparse
import sys
import threading
import time
import typing
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from testing.chaos.draw import draw
from testing.chaos.run import Outcome, run
from testing.chaos.schedule import Schedule, Transfer
from testing.chaos.summary import summary, table
from testing.processes.forks import Forks


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testing.chaos", description=__doc__)
    parser.add_argument("--n", type=int, default=40, help="number of schedules. Default: 40")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the first schedule; the others have the following seeds. Default: 0",
    )
    parser.add_argument(
        "--jobs", type=int, default=4, help="schedules that run at once. Default: 4"
    )
    parser.add_argument(
        "--transfer",
        choices=typing.get_args(Transfer),
        default="drawn",
        help="how rows reach the sidecars: over direct connections (tcp, tls), over gRPC (grpc), or"
        " over shared memory or gRPC with proxies, as each schedule says (drawn). Default: drawn",
    )
    parser.add_argument(
        "--show", action="store_true", help="print the schedules without running them"
    )
    parser.add_argument("--verbose", action="store_true", help="print the faults of every schedule")
    return parser


def describe(outcome: Outcome, number: str = "", verbose: bool = True) -> str:
    """Return a text that describes one outcome."""
    verdict = outcome.verdict
    kinds = " ".join(applied.kind for applied in outcome.applied) or "no fault was applied"
    lines = [
        f"{number} seed {outcome.schedule.seed}: {'ok' if outcome.passed else 'FAILED'} "
        f"{outcome.seconds:.1f} s, {verdict.epochs} epochs, {verdict.received} rows; {kinds}"
    ]
    if verbose or not outcome.passed:
        lines += [f"    {a.kind}: {a.note}" for a in outcome.applied]
    if not outcome.passed:
        lines += [f"  {line}" for line in str(outcome.schedule).splitlines()]
        lines.append(
            f"  lost {verdict.lost}, repeated {verdict.repeated}, damaged {verdict.damaged}"
        )
        lines += [f"  - {problem}" for problem in outcome.problems]
        lines.append(f"  repeat: python -m testing.chaos --n 1 --seed {outcome.schedule.seed}")
        lines.append(f"  logs: {outcome.folder}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the schedules and return 0 if all passed."""
    args = _parser().parse_args(argv)
    seeds = range(args.seed, args.seed + args.n)

    def schedule(seed: int) -> Schedule:
        return replace(draw(seed), transfer=args.transfer)

    if args.show:
        print("\n".join(str(schedule(seed)) for seed in seeds))
        return 0
    began = time.monotonic()
    outcomes: list[Outcome] = []
    lock = threading.Lock()
    with Forks() as forks, ThreadPoolExecutor(args.jobs) as pool:

        def one(seed: int) -> None:
            outcome = run(schedule(seed), forks)
            with lock:
                outcomes.append(outcome)
                number = f"[{len(outcomes)}/{len(seeds)}]"
                print(describe(outcome, number, args.verbose), flush=True)

        list(pool.map(one, seeds))
    found = summary(outcomes)
    print(table(found, time.monotonic() - began))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
