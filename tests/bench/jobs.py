"""Several jobs of one dataset, over one worker: what they cost it, beside one alone.

    python -m tests.bench.jobs [--jobs 8] [--rounds 5]

Every job is a trainer's process with a sidecar of its own and reads one epoch of the photos as
quickly as it comes. Per round, on the same worker and interleaved: one job; all jobs on the same
seed, which share; and two on different seeds, which cannot. Prints medians with their bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from distributed_input_operator.core.load import data_plane_config
from distributed_input_operator.core.types import API_VERSION, KIND, DistributedInput
from tests.bench.case import REPO
from tests.bench.ours import _part
from tests.bench.processes import cpu_seconds

TARGET = "tests.bench.jobs:dataset_fn"
_READ = """
import sys, distributed_input
sys.stdin.readline()
with distributed_input.connect(job=sys.argv[1]) as data:
    print(sum(len(batch["id"]) for batch in data.numpy()), flush=True)
"""


def dataset_fn(ctx: Any, folder: str) -> Any:
    """The photos example's: a millisecond or more of CPU a row."""
    sys.path.append(str(REPO / "examples" / "photos"))
    import photos

    return photos.dataset_fn(ctx, folder)


def main() -> None:
    """Measure, and print a table."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.jobs", description=__doc__)
    made.add_argument("--jobs", type=int, default=8)
    made.add_argument("--rounds", type=int, default=5)
    options = made.parse_args()
    settings = {"1 job": (1, False), f"{options.jobs} jobs": (options.jobs, False)}
    settings["2 jobs, each its own seed"] = (2, True)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as path, _worker(Path(path)) as (address, worker):
        measure(Path(path), address, worker, 1, False)  # files are written, pages are read
        for number in range(options.rounds):
            order = list(settings)
            for name in order[number % 3 :] + order[: number % 3]:
                found[name].append(measure(Path(path), address, worker, *settings[name]))
                print(f"round {number + 1}: {name}: {found[name][-1]}", file=sys.stderr)
    ones = [cpu for cpu, _ in found["1 job"]]
    print("| setting | worker CPU s | beside one job, by round | seconds |\n|---|---|---|---|")
    for name, results in found.items():
        ratios = [cpu / one for (cpu, _), one in zip(results, ones, strict=True)]
        seconds = [wall for _, wall in results]
        print(f"| {name} | {_of([c for c, _ in results])} | {_of(ratios)} | {_of(seconds)} |")


def _of(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


@contextlib.contextmanager
def _worker(folder: Path) -> Iterator[tuple[str, int]]:
    """A dispatcher and a worker: the dispatcher's address, the worker's process."""
    (folder / "token").write_text("bench")
    with _part("dispatcher", folder, "dispatcher") as dispatcher:
        address = dispatcher.said()["address"]
        flags = ["--dispatcher", address, "--path", str(REPO)]
        with _part("worker", folder, "worker", *flags) as worker:
            worker.said()
            yield address, worker.pid


def measure(folder: Path, address: str, worker: int, jobs: int, seeds: bool) -> tuple[float, float]:
    """(the worker's CPU seconds, seconds) until all jobs have read an epoch."""
    run = f"{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        readers = []
        for job in range(jobs):
            config = folder / f"{run}-{job}.json"
            config.write_text(json.dumps({"inputs": {"bench": _config(job if seeds else 0)}}))
            shared = stack.enter_context(tempfile.TemporaryDirectory(prefix="di-", dir="/dev/shm"))
            flags = ["--dispatcher", address, "--config", str(config), "--dir", shared]
            sidecar = stack.enter_context(_part("sidecar", folder, f"{run}-{job}", *flags))
            sidecar.said()
            readers.append(_reader(f"{run}-{job}", shared))
        began, before = time.perf_counter(), cpu_seconds([worker])
        for reader in readers:
            assert reader.stdin
            reader.stdin.write(b"go\n")
            reader.stdin.close()
        rows = [int((reader.stdout or sys.stdin).readline()) for reader in readers]
        seconds, cpu = time.perf_counter() - began, cpu_seconds([worker]) - before
        assert len(set(rows)) == 1, rows
        for reader in readers:
            reader.wait(30)
    return round(cpu, 2), round(seconds, 2)


def _reader(job: str, shared: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _READ, job],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"DISTRIBUTED_INPUT_DIR": shared, "PATH": "/usr/bin:/bin"},
        cwd=REPO,
    )


def _config(seed: int) -> dict[str, Any]:
    dataset = {"entryPoint": TARGET, "args": {"folder": "data"}, "source": {"path": str(REPO)}}
    spec = {"dataset": dataset, "seed": seed, "epochs": 1}
    resource = DistributedInput.model_validate(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "bench"}, "spec": spec}
    )
    return data_plane_config(resource)


if __name__ == "__main__":
    main()
