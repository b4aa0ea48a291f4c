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
from testing.bench.systems import Hosts, Setup, TrainerSetup, one_host, serve, two_hosts
from testing.bench.workloads import latency, ordinary, photos, small_rows, transport, waiting

OWN_ROLES = ("trainer", "sidecar")
"""Processes that each trainer has."""
FAMILIES = {
    "ordinary": ordinary.cases,
    "transport": transport.cases,
    "small-rows": small_rows.cases,
    "photos": photos.cases,
    "latency": latency.cases,
    "waiting": waiting.cases,
    "partitions": small_rows.partition_cases,
}
DEFAULT_FAMILIES = ("ordinary", "transport")


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
        if not options.only or any(part in case.name for part in options.only)
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    before = report.machine()
    results = []
    names = ("quick", "rounds", "seconds", "first_seconds", "one_host")
    settings = {name: getattr(options, name) for name in names}
    with one_host() if options.one_host else two_hosts() as hosts:
        for i, case in enumerate(cases):
            results.append(_measure(case, f"[{i + 1}/{len(cases)}]", hosts, options))
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
        "--rounds", type=int, help="rounds of each case. Default: 3, with --quick 1"
    )
    parser.add_argument(
        "--first-seconds",
        type=float,
        help="seconds from the first batch on that count as the start. Default: 10, with --quick 1",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="seconds of the steady state after the start. Default: 5, with --quick 1",
    )
    parser.add_argument(
        "--one-host",
        action="store_true",
        help="run everything on this host, without limits to CPUs; needs no root",
    )
    parser.add_argument("--only", nargs="+", default=[], help="run cases whose names contain this")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(DEFAULT_FAMILIES))
    parser.add_argument("--systems", nargs="+", choices=SHORT, default=list(DEFAULT))
    parser.add_argument(
        "--workers",
        nargs="+",
        type=int,
        default=[],
        help="run only cases with these numbers of workers",
    )
    options = parser.parse_args()
    quick = options.quick
    options.rounds = options.rounds or (1 if quick else 3)
    options.seconds = options.seconds or (1.0 if quick else 5.0)
    options.first_seconds = options.first_seconds or (1.0 if quick else 10.0)
    return options


def _measure(
    case: Case, progress: str, hosts: Hosts, options: argparse.Namespace
) -> dict[str, Any]:
    """Run all rounds of one case. All processes of a measurement are new, and no others run."""
    rounds: list[dict[str, Any]] = []
    for number in range(options.rounds):
        rounds.append({})
        # Rotate the order, so that effects of neighbours even out.
        shift = number % len(case.systems)
        for name in case.systems[shift:] + case.systems[:shift]:
            with serve(case, name, hosts) as setup:
                found = rounds[-1][name] = _trainers(case, name, setup, options)
            rate = f"{report.gigabytes_per_second(found):.3f} GB/s"
            rate += f", {report.rows_per_second(found):.0f} rows/s"
            rate += f", first {report.first_rows_per_second(found):.0f}"
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
            "first_seconds": options.first_seconds,
            "seconds": options.seconds,
            "pids": one.pids,
            **one.options,
        }
        limit = 120 + 10 * (options.first_seconds + options.seconds)
        return run("testing.bench.trainer", settings, one.env, limit, one.host)

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
        "start": {
            **first["start"],
            "first_batch": max(one["start"]["first_batch"] for one in found),
            "rows": sum(one["start"]["rows"] for one in found),
        },
        **{key: _by_role(key, found) for key in ("cpu", "switches")},
    }


def _by_role(key: str, found: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {
        role: sum(one[key][role] for one in found) if role in OWN_ROLES else value
        for role, value in found[0][key].items()
    }


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(str(error))
