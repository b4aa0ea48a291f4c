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
from functools import partial

_REPORT_SECONDS = 10.0
_FORK = multiprocessing.get_context("fork")
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


def _prepare(args: argparse.Namespace) -> None:
    """Let this process only simulate from now on."""
    from testing.delivery.install import install

    install()
    from testing.chaos import mutants

    if args.mutant:
        mutants.apply(args.mutant)
    gc.collect()
    gc.freeze()
    gc.disable()


def _simulated(args: argparse.Namespace, seed: int) -> tuple[str, str]:
    """Return the result line of a schedule, and the description of a failure or ""."""
    from testing.delivery.cases import draw
    from testing.delivery.run import collect, simulate
    from testing.delivery.world import scratch

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
    if seed % 5 == 4:
        collect()
    return line, text


def _results(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    seeds, simulated = range(args.seed, args.seed + args.n), partial(_simulated, args)
    if min(args.jobs, args.n) <= 1:
        _prepare(args)
        yield from map(simulated, seeds)
        return
    with _FORK.Pool(args.jobs, _prepare, (args,)) as pool:
        yield from pool.imap_unordered(simulated, seeds)


def _first_seed(args: argparse.Namespace, name: str) -> int | None:
    """Return the first seed that reports a bug; None if none does."""
    from testing.delivery.cases import GUARDS, MOST_SEEDS

    args.mutant, args.case = name, GUARDS[name] or None
    _prepare(args)
    return next((seed for seed in range(MOST_SEEDS) if _simulated(args, seed)[1]), None)


def _check_guards(args: argparse.Namespace) -> int:
    from testing.delivery.cases import GUARDS

    with _FORK.Pool(args.jobs, maxtasksperchild=1) as pool:  # a process for each bug
        found = pool.map(partial(_first_seed, args), GUARDS, chunksize=1)
    for (name, case), seed in zip(GUARDS.items(), found, strict=True):
        where = f"seed {seed}" if seed is not None else "NOT FOUND"
        print(f"{name}: {where}{f' of case {case}' if case else ''}")
    return 1 if None in found else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate the schedules and return 0 if all passed."""
    args = _parser().parse_args(argv)
    if args.guards:
        return _check_guards(args)
    began = reported = time.monotonic()
    done = failed = 0
    for line, text in _results(args):
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
