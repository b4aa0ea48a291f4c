"""The command: see the package's docstring."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testing.bench import baselines, data_plane, latency, photos, report, transport
from testing.bench.case import OURS, SHORT, Case, System, only
from testing.bench.processes import BenchError, run

FAMILIES = {"transport": transport, "photos": photos, "latency": latency}


def main() -> None:
    """Measure every case on every system, interleaved, and write the report."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped
    cases = [
        case
        for family in options.families
        for case in only(
            FAMILIES[family].cases(options.quick),
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
    print(f"written to {options.out}: results.json, results.md, results.svg")


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m testing.bench", description=__doc__)
    made.add_argument("--out", type=Path, default=Path("build/bench"), help="gets the report")
    made.add_argument("--quick", action="store_true", help="few cases: to see that all runs")
    made.add_argument("--rounds", type=int, help="default: 5, with --quick 2")
    made.add_argument("--seconds", type=float, help="of a measurement; default: 5, with --quick 2")
    made.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    made.add_argument("--systems", nargs="+", choices=SHORT, default=list(SHORT))
    made.add_argument("--workers", nargs="+", type=int, default=[], help="only with so many")
    options = made.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (2.0 if options.quick else 5.0)
    return options


def _measure(case: Case, progress: str, options: argparse.Namespace) -> dict[str, Any]:
    """All rounds of one case. Servers stay up; each round has fresh trainers and sidecars."""
    rounds: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="di-bench-")))
        stack.push(_keep_logs(folder, options.out / "logs"))
        systems: dict[str, System] = {}
        for name in case.systems:
            own = folder / str(len(systems))
            own.mkdir()
            serve = data_plane.serve if name == OURS else baselines.serve
            systems[name] = stack.enter_context(serve(case, name, own))
        for number in range(options.rounds):
            rounds.append({})
            # Every system is first, second, ... in turn: neighbours' effects even out.
            turn = number % len(case.systems)
            for name in case.systems[turn:] + case.systems[:turn]:
                found = _trainer(case, name, systems[name], folder / "trainer.log", options)
                rounds[-1][name] = found
                rate = f"{report.gigabytes_a_second(found):.3f} GB/s"
                rate += f", {report.rows_a_second(found):.0f} rows/s"
                turns = f"round {number + 1}/{options.rounds}"
                print(f"{progress} {case.title}, {turns}  {name}: {rate}", flush=True)
    return {"case": vars(case), "rounds": rounds}


def _keep_logs(folder: Path, to: Path) -> Callable[..., None]:
    """For an ExitStack: where something fails, what the processes wrote outlives them."""

    def leave(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, BenchError):
            shutil.copytree(folder, to, dirs_exist_ok=True, ignore_dangling_symlinks=True)
            print(f"all logs of this case: {to}", file=sys.stderr)

    return leave


def _trainer(
    case: Case, system: str, up: System, log: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """One trainer, from its start to its end."""
    with up.beside() as beside:
        given = {
            "system": system,
            "target": case.target,
            "args": case.args,
            "service_args": case.service_args,
            "sharding": case.sharding,
            "warmup": options.seconds / 2,
            "warmup_batches": 20,
            "seconds": options.seconds,
            "pids": beside.pids,
            **beside.options,
        }
        argv = [sys.executable, "-m", "testing.bench.trainer", json.dumps(given)]
        return run(argv, log, beside.env, timeout=120 + 10 * options.seconds)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(str(error))
