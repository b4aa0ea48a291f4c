"""The command line: `python -m testing.fuzz`. See the package's docstring."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from testing.fuzz import run
from testing.fuzz.run import Outcome
from testing.fuzz.target import Subject, Target
from testing.fuzz.targets import TARGETS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets, print a table and findings, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m testing.fuzz", description=__doc__)
    parser.add_argument("--n", type=int, default=10_000, help="inputs of all targets together")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--only", metavar="NAME", help="targets whose names begin with it")
    parser.add_argument("--input", type=int, metavar="I", help="parse one input in this process")
    parser.add_argument("--list", action="store_true", help="list the targets")
    args = parser.parse_args(arguments)
    targets = [
        one
        for one in TARGETS
        if one.name == args.only or (one.name.startswith(args.only or "") and not one.known)
    ]
    if not targets:
        parser.error(f"--only {args.only}: no such target")
    if args.list:
        for one in TARGETS:
            print(f"{one.name:26} {one.source}{f' (not run: {one.known})' if one.known else ''}")
        return 0
    if args.input is not None:
        subject = targets[0].build()
        repeat(subject, run.input_of(subject, targets[0].name, args.seed, args.input))
        return 0
    return run_all(targets, args.n, args.seed, run.run, _place)


def shares(targets: Sequence[Target], count: int) -> list[int]:
    """Return the number of inputs of each target: at least one, and at least `count` in total."""
    total = sum(one.weight for one in targets)
    return [-int(-count * one.weight // total) for one in targets]


def run_all(
    targets: Sequence[Target],
    count: int,
    seed: int,
    run_one: Callable[[Target, int, int], Outcome],
    place: Callable[[Target, int, int], str],
) -> int:
    """Run targets, print a table and findings, and return the exit status.

    Args:
        targets: the targets.
        count: number of inputs of all targets together.
        seed: the seed.
        run_one: runs a number of inputs of one target, with a seed.
        place: returns the flags that run an input again, by target, seed and index.
    """
    print(f"{'target':26} {'inputs':>8} {'accepted':>8} {'CPU s':>7} {'slowest ms':>10} {'MiB':>5}")
    outcomes: list[Outcome] = []
    for target, share in zip(targets, shares(targets, count), strict=True):
        found = run_one(target, share, seed)
        outcomes.append(found)
        print(
            f"{target.name:26} {found.inputs:8} {found.accepted:8} {found.seconds:7.1f} "
            f"{1000 * found.longest:10.1f} {found.grown / (1 << 20):5.1f}",
            flush=True,
        )
        for one in found.findings:
            print(f"  FINDING {place(target, seed, one.index)}: {one.cause}")
    findings = sum(len(one.findings) for one in outcomes)
    inputs = sum(one.inputs for one in outcomes)
    print(f"{inputs} inputs, {len(targets)} targets, {findings} findings")
    return 1 if findings else 0


def _place(target: Target, seed: int, index: int) -> str:
    return f"--only {target.name} --seed {seed} --input {index}"


def repeat(subject: Subject, data: bytes) -> None:
    """Parse an input in this process, and print the result."""
    print(f"{len(data)} bytes: {data[:2000]!r}")
    try:
        print(repr(subject.parse(data))[:2000])
    except subject.errors as error:
        print(f"refused: {error!r}"[:2000])


if __name__ == "__main__":
    sys.exit(main())
