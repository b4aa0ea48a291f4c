"""The cost of several jobs of one dataset for one worker, compared with one job.

    python -m testing.bench.jobs [--jobs 8] [--rounds 5] [--epochs 1]

Every job has its own trainer process and sidecar, and reads the photos as fast as possible. Each
round measures on the same worker, in turn: one job; all jobs with the same seed, which share rows;
and two jobs with different seeds, which cannot share. Prints medians with their range.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput, input_config
from testing.bench.case import REPO
from testing.bench.data_plane import start_process
from testing.bench.processes import cpu_seconds

TARGET = "testing.bench.jobs:dataset_fn"
_READ = """
import sys, distributed_input
sys.stdin.readline()
with distributed_input.connect(job=sys.argv[1]) as data:
    epochs = range(int(sys.argv[2]))
    print(sum(len(batch["id"]) for epoch in epochs for batch in data.numpy()), flush=True)
"""


def dataset_fn(ctx: Any, folder: str) -> Any:
    """Return the dataset of the photos example: a millisecond or more of CPU per row."""
    sys.path.append(str(REPO / "examples" / "photos"))
    import photos

    return photos.dataset_fn(ctx, folder)


def main() -> None:
    """Measure all settings and print a table."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    epochs = options.epochs
    settings = {"1 job": (1, False), f"{options.jobs} jobs": (options.jobs, False)}
    settings["2 jobs, each its own seed"] = (2, True)
    found: dict[str, list[Cost]] = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as path, _worker(Path(path)) as (address, worker):
        measure(Path(path), address, worker, 1, 1, False)  # warm up: write files, read pages
        for number in range(options.rounds):
            order = list(settings)
            for name in order[number % 3 :] + order[: number % 3]:
                found[name].append(measure(Path(path), address, worker, epochs, *settings[name]))
                print(f"round {number + 1}: {name}: {found[name][-1]}", file=sys.stderr)
    ones = [one.cpu for one in found["1 job"]]
    print("| Setting | Worker CPU s | Relative to one job |  Computations per row | Seconds |")
    print("|---|---|---|---|---|")
    for name, results in found.items():
        ratios = [cost.cpu / one for cost, one in zip(results, ones, strict=True)]
        columns = [[c.cpu for c in results], ratios, [c.computed for c in results]]
        columns.append([c.seconds for c in results])
        print(f"| {name} | {' | '.join(map(_format_spread, columns))} |")


def _format_spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class Worker(NamedTuple):
    """A worker process and the address of its metrics."""

    pid: int
    metrics: str


class Cost(NamedTuple):
    """The result of one measurement.

    Attributes:
        cpu: CPU seconds of the worker.
        computed: how often the worker computed a row, on average.
        seconds: time until all jobs have read everything.
    """

    cpu: float
    computed: float
    seconds: float


@contextlib.contextmanager
def _worker(folder: Path) -> Iterator[tuple[str, Worker]]:
    """Start a dispatcher and a worker; yield the dispatcher's address and the worker."""
    (folder / "token").write_text("bench")
    with start_process("dispatcher", folder, "dispatcher") as dispatcher:
        address = dispatcher.wait_ready()["address"]
        flags = ["--dispatcher", address, "--path", str(REPO)]
        with start_process("worker", folder, "worker", *flags, metrics="127.0.0.1:0") as worker:
            yield address, Worker(worker.pid, worker.wait_ready()["metrics"])


def _rows_computed(worker: Worker) -> float:
    """Return the rows that the worker has computed since its start, with replayed rows."""
    with urllib.request.urlopen(f"http://{worker.metrics}/metrics", timeout=10) as page:
        metrics = dict(
            re.findall(r"^distributed_input_worker_(\w+) (\S+)$", page.read().decode(), re.M)
        )
    sent, shared, replayed = (metrics[f"{name}rows_total"] for name in ("", "shared_", "replayed_"))
    return float(sent) - float(shared) + float(replayed)


def measure(
    folder: Path, address: str, worker: Worker, epochs: int, jobs: int, seeds: bool
) -> Cost:
    """Let this number of jobs read this number of epochs. `seeds`: each job has its own seed."""
    run = f"{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        readers = []
        for job in range(jobs):
            config = folder / f"{run}-{job}.json"
            config.write_text(
                json.dumps({"inputs": {"bench": _config(job if seeds else 0, epochs)}})
            )
            shared = stack.enter_context(tempfile.TemporaryDirectory(prefix="di-", dir="/dev/shm"))
            flags = ["--dispatcher", address, "--config", str(config), "--dir", shared]
            sidecar = stack.enter_context(start_process("sidecar", folder, f"{run}-{job}", *flags))
            sidecar.wait_ready()
            readers.append(_reader(f"{run}-{job}", shared, epochs))
        began, before, computed = (
            time.perf_counter(),
            cpu_seconds([worker.pid]),
            _rows_computed(worker),
        )
        for reader in readers:
            assert reader.stdin
            reader.stdin.write(b"go\n")
            reader.stdin.close()
        rows = [int((reader.stdout or sys.stdin).readline()) for reader in readers]
        seconds, cpu = time.perf_counter() - began, cpu_seconds([worker.pid]) - before
        assert len(set(rows)) == 1, rows
        for reader in readers:
            reader.wait(30)
        computed = (_rows_computed(worker) - computed) / rows[0]
    return Cost(round(cpu, 2), round(computed, 3), round(seconds, 2))


def _reader(job: str, shared: str, epochs: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _READ, job, str(epochs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"DISTRIBUTED_INPUT_DIR": shared, "PATH": "/usr/bin:/bin"},
        cwd=REPO,
    )


def _config(seed: int, epochs: int) -> dict[str, Any]:
    source = {"type": "Path", "path": str(REPO)}
    entry = {"function": TARGET, "args": {"folder": "data"}, "source": source}
    spec = {"dataset": {"type": "EntryPoint", "entryPoint": entry}, "seed": seed, "epochs": epochs}
    resource = DistributedInput.model_validate(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "bench"}, "spec": spec}
    )
    return input_config(resource).to_json()


if __name__ == "__main__":
    main()
