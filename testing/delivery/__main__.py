"""Simulate seeded schedules of the delivery: `python -m testing.delivery`."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence

from testing.delivery import guards

_REPORT_SECONDS = 10.0
_ALL_PROCESSES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testing.delivery", description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="number of schedules. Default: 200")
    parser.add_argument("--seed", type=int, default=0, help="first seed. Default: 0")
    parser.add_argument("--jobs", type=int, default=2, help="processes that simulate. Default: 2")
    parser.add_argument("--mutant", help="a deliberate bug of testing.chaos.mutants to apply")
    parser.add_argument("--case", help="a case of `cases.CASES` for all seeds")
    parser.add_argument(
        "--guards", action="store_true", help="apply each bug and print the first seed that fails"
    )
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failed seed")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each trace")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the event trace")
    parser.add_argument(
        "--stacks", type=float, default=0.0, help="with -v: virtual second at which to print stacks"
    )
    return parser


def _simulate(seeds: Sequence[int], args: argparse.Namespace) -> Iterator[tuple[int, str, str]]:
    """Yield (seed, result line, description of a failure or "") of each schedule."""
    from testing.delivery.install import install

    install()
    from testing.chaos import mutants
    from testing.delivery.cases import draw
    from testing.delivery.run import collect, simulate
    from testing.delivery.world import scratch

    if args.mutant:
        mutants.apply(args.mutant)
    gc.collect()
    gc.freeze()
    gc.disable()
    for number, seed in enumerate(seeds):
        delivery = draw(seed, args.case)
        if args.verbose:
            print(delivery, flush=True)
        with scratch() as folder:
            outcome = simulate(delivery, folder, print if args.verbose else None, args.stacks)
        line = (
            f"seed {seed}: {'ok' if outcome.passed else 'FAILED'} hash {outcome.hash:016x} "
            f"{outcome.switches} switches {outcome.seconds:.1f} s {outcome.verdict.received} rows"
        )
        text = ""
        if not outcome.passed:
            text = "\n".join([line, str(delivery), *(f"  - {p}" for p in outcome.problems)])
            text += f"\n  repeat: python -m testing.delivery --n 1 --seed {seed} -v"
            text += f" --case {args.case}" if args.case else ""
        yield seed, line, text
        if number % 5 == 4:
            collect()


def _work(queue: multiprocessing.Queue, seeds: Sequence[int], args: argparse.Namespace) -> None:
    for result in _simulate(seeds, args):
        queue.put(result)
    queue.put(None)


def _results(seeds: Sequence[int], args: argparse.Namespace) -> Iterator[tuple[int, str, str]]:
    jobs = min(args.jobs, len(seeds))
    if jobs <= 1:
        yield from _simulate(seeds, args)
        return
    queue: multiprocessing.Queue = multiprocessing.Queue()
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_work, args=(queue, seeds[i::jobs], args), daemon=True)
        for i in range(jobs)
    ]
    for worker in workers:
        worker.start()
    running = jobs
    while running:
        result = queue.get()
        if result is None:
            running -= 1
        else:
            yield result
    for worker in workers:
        worker.join()


def _check_guards(jobs: int) -> int:
    found = dict(guards.first_seeds(list(guards.GUARDS), jobs))
    for name, seed in found.items():
        case = guards.GUARDS[name]
        where = f"seed {seed}" if seed is not None else "NOT FOUND"
        print(f"{name}: {where}{f' of case {case}' if case else ''}")
    return 1 if None in found.values() else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate the schedules and return 0 if all passed."""
    args = _parser().parse_args(argv)
    if args.guards:
        return _check_guards(args.jobs)
    seeds = range(args.seed, args.seed + args.n)
    began = reported = time.monotonic()
    done = failed = 0
    for _, line, text in _results(seeds, args):
        done += 1
        if text:
            failed += 1
            print(text, flush=True)
        elif args.hashes:
            print(line, flush=True)
        if text and args.fail_fast:
            break
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported = time.monotonic()
            print(f"{done} of {args.n} schedules, {failed} failed", file=sys.stderr, flush=True)
    took = time.monotonic() - began
    used = sum(sum(resource.getrusage(who)[:2]) for who in _ALL_PROCESSES)
    print(
        f"{done} schedules, {failed} failed, {took:.1f} s, {done / took:.1f} per second, "
        f"{1000 * used / done:.1f} ms of CPU each"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings have the same order each time
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "testing.delivery", *sys.argv[1:]])
    sys.exit(main())
