"""The command `python -m testing.bench`; see the package's docstring."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testing.bench import report
from testing.bench.case import DEFAULT, SHORT, Case, selected
from testing.bench.processes import BenchError, run
from testing.bench.systems import Setup, TrainerSetup, serve
from testing.bench.workloads import latency, photos, small_rows, transport, waiting

OWN_ROLES = ("trainer", "sidecar")
"""Processes that each trainer has."""
FAMILIES = {
    "transport": transport.cases,
    "small-rows": small_rows.cases,
    "photos": photos.cases,
    "latency": latency.cases,
    "waiting": waiting.cases,
    "partitions": small_rows.partition_cases,
}


def main() -> None:
    """Measure every case on every system in turn, and write the report."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the servers
    cases = [
        case
        for family in options.families
        for case in selected(
            FAMILIES[family](options.quick),
            [SHORT[system] for system in options.systems],
            options.workers,
        )
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    before = report.machine()
    results = []
    for i, case in enumerate(cases):
        results.append(_measure(case, f"[{i + 1}/{len(cases)}]", options))
        settings = {"quick": options.quick, "rounds": options.rounds, "seconds": options.seconds}
        report.write(options.out, {"machine": before, "settings": settings, "cases": results})
    print(f"written to {options.out}: results.json, results.md")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m testing.bench", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("build/bench"), help="folder for the report"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run few cases, to check that everything runs"
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds of each case. Default: 5, with --quick 2"
    )
    parser.add_argument(
        "--seconds", type=float, help="seconds of a measurement. Default: 5, with --quick 2"
    )
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--systems", nargs="+", choices=SHORT, default=list(DEFAULT))
    parser.add_argument(
        "--workers",
        nargs="+",
        type=int,
        default=[],
        help="run only cases with these numbers of workers",
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (2.0 if options.quick else 5.0)
    return options


def _measure(case: Case, progress: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds of one case.

    Servers keep running; each round has new trainers and sidecars.
    """
    rounds: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        setups = {name: stack.enter_context(serve(case, name)) for name in case.systems}
        for number in range(options.rounds):
            rounds.append({})
            # Rotate the order, so that effects of neighbours even out.
            shift = number % len(case.systems)
            for name in case.systems[shift:] + case.systems[:shift]:
                found = _trainers(case, name, setups[name], options)
                rounds[-1][name] = found
                rate = f"{report.gigabytes_per_second(found):.3f} GB/s"
                rate += f", {report.rows_per_second(found):.0f} rows/s"
                round_name = f"round {number + 1}/{options.rounds}"
                print(f"{progress} {case.title}, {round_name}  {name}: {rate}", flush=True)
    return {"case": vars(case), "rounds": rounds}


def _trainers(case: Case, system: str, setup: Setup, options: argparse.Namespace) -> dict[str, Any]:
    """Run the trainers of a case at the same time. Return their measurements together."""

    def run_one(one: TrainerSetup) -> dict[str, Any]:
        settings = {
            "system": system,
            "target": case.target,
            "args": case.args,
            "service_args": case.service_args,
            "sharding": case.sharding,
            "warmup": options.seconds / 2,
            "warmup_batches": 20,
            "seconds": options.seconds,
            "pids": one.pids,
            **one.options,
        }
        return run("testing.bench.trainer", settings, one.env, 120 + 10 * options.seconds)

    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(setup(index)) for index in range(case.trainers)]
        with ThreadPoolExecutor(case.trainers) as pool:
            return together(list(pool.map(run_one, started)))


def together(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sum of what trainers measured at about the same time.

    Each of them measured the processes that they share, so these count once.
    """
    first = found[0]
    return {
        **first,
        **{key: sum(one[key] for one in found) for key in ("rows", "bytes", "batches")},
        "cpu": {
            role: sum(one["cpu"][role] for one in found) if role in OWN_ROLES else seconds
            for role, seconds in first["cpu"].items()
        },
    }


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(str(error))
