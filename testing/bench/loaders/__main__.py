"""The command `python -m testing.bench.loaders`; see the package's docstring."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from testing.bench.case import REPO
from testing.bench.loaders import shards
from testing.bench.systems import default_spec, sidecar
from testing.frameworks import environment
from testing.integration.cluster import Cluster

OURS = "DistributedInput"
SYSTEMS = ("DataLoader", "Grain", "Streaming", OURS)
KINDS = ("tokens", "images")
_ENTRY_POINT = "testing.bench.loaders.shards:dataset_fn"
_TIMEOUT = 120.0


def main() -> None:
    """Measure every system in turn, and print a table of the rows."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.loaders", description=__doc__)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first-seconds", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--workers", type=int, default=4, help="of DistributedInput")
    options = parser.parse_args()
    shards.write()
    _loop({"write": True})
    for kind in options.kinds:
        found: dict[str, list[Mapping[str, float]]] = {system: [] for system in options.systems}
        for number in range(options.rounds):
            order = options.systems if number % 2 else options.systems[::-1]
            for system in order:
                found[system].append(measure(system, kind, options))
                print(
                    f"{kind}, round {number + 1}, {system}: {_text(found[system][-1])}", flush=True
                )
        print(f"\n{kind}: median (lowest to highest)\n\n{table(found)}\n", flush=True)


def measure(system: str, kind: str, options: argparse.Namespace) -> Mapping[str, float]:
    """Measure one loader, with new processes. Return rows/s, seconds and CPU seconds."""
    case: dict[str, Any] = {"system": system, "kind": kind, "pids": [], "others": []}
    case |= {"seconds": options.seconds, "first_seconds": options.first_seconds}
    if system == OURS:
        with Cluster() as cluster:
            workers = cluster.add_workers(options.workers, "--path", str(REPO))
            one = default_spec(_ENTRY_POINT, {"kind": kind}, globalBatchSize=64)
            with sidecar(cluster, one) as started:
                case["pids"] = [started.pid]
                case["others"] = [part.pid for part in (cluster.dispatcher, *workers)]
                seen = _loop(case, DISTRIBUTED_INPUT_DIR=str(started.shared))
    else:
        seen = _loop(case)
    return {
        "rows/s": seen["rows"] / seen["seconds"],
        "CPU s/GB": seen["cpu"] / seen["bytes"] * 1e9,
        "of it the trainer's pod": seen["host"] / seen["bytes"] * 1e9,
        "first batch, s": seen["first"],
    }


def table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Return the medians as Markdown, with the ratio of our rate to each system's in its round."""
    names = list(next(iter(found.values()))[0])
    lines = [f"| | {' | '.join(names)} | Rate ratio |", "|---" * (len(names) + 2) + "|"]
    for system, rounds in found.items():
        cells = [_spread([one[name] for one in rounds]) for name in names]
        ours = found.get(OURS, rounds)
        pairs = zip(ours, rounds, strict=True)
        ratio = _spread([mine["rows/s"] / one["rows/s"] for mine, one in pairs])
        lines.append(f"| {' | '.join([system, *cells, ratio if system != OURS else ''])} |")
    return "\n".join(lines)


def _loop(case: Mapping[str, Any], **env: str) -> dict[str, Any]:
    command = environment.run_module(
        "testing.bench.loaders.loop",
        json.dumps(case),
        name="loaders",
        packages=environment.LOADERS,
    )
    done = subprocess.run(
        command, cwd=REPO, env={**os.environ, **env}, timeout=_TIMEOUT, stdout=subprocess.PIPE
    )
    if done.returncode:
        raise SystemExit(f"{case} ended with status {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _text(measured: Mapping[str, float]) -> str:
    return ", ".join(f"{value:.4g} {name}" for name, value in measured.items())


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
