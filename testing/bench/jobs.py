"""Several jobs of one dataset, over one worker: what they cost it, beside one alone.

    python -m testing.bench.jobs [--jobs 8] [--rounds 5] [--epochs 1]

Every job is a trainer's process with a sidecar of its own and reads the photos as
quickly as it comes. Per round, on the same worker and interleaved: one job; all jobs on the same
seed, which share; and two on different seeds, which cannot. Prints medians with their bounds.
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

from distributed_input.api.resource.data_plane import data_plane_config
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput
from testing.bench.case import REPO
from testing.bench.ours import _part
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
    """The photos example's: a millisecond or more of CPU a row."""
    sys.path.append(str(REPO / "examples" / "photos"))
    import photos

    return photos.dataset_fn(ctx, folder)


def main() -> None:
    """Measure, and print a table."""
    made = argparse.ArgumentParser(prog="python -m testing.bench.jobs", description=__doc__)
    made.add_argument("--jobs", type=int, default=8)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--epochs", type=int, default=1)
    options = made.parse_args()
    epochs = options.epochs
    settings = {"1 job": (1, False), f"{options.jobs} jobs": (options.jobs, False)}
    settings["2 jobs, each its own seed"] = (2, True)
    found: dict[str, list[Cost]] = {name: [] for name in settings}
    with tempfile.TemporaryDirectory() as path, _worker(Path(path)) as (address, worker):
        measure(Path(path), address, worker, 1, 1, False)  # files are written, pages are read
        for number in range(options.rounds):
            order = list(settings)
            for name in order[number % 3 :] + order[: number % 3]:
                found[name].append(measure(Path(path), address, worker, epochs, *settings[name]))
                print(f"round {number + 1}: {name}: {found[name][-1]}", file=sys.stderr)
    ones = [one.cpu for one in found["1 job"]]
    print("| setting | worker CPU s | beside one job, by round | times a row was made | seconds |")
    print("|---|---|---|---|---|")
    for name, results in found.items():
        ratios = [cost.cpu / one for cost, one in zip(results, ones, strict=True)]
        columns = [[c.cpu for c in results], ratios, [c.made for c in results]]
        columns.append([c.seconds for c in results])
        print(f"| {name} | {' | '.join(map(_of, columns))} |")


def _of(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class Worker(NamedTuple):
    """A worker's process, and where its metrics are."""

    pid: int
    metrics: str


class Cost(NamedTuple):
    """What one measurement came to: the worker's CPU seconds, how often it made a row in the mean,
    and seconds until all jobs have read all.
    """

    cpu: float
    made: float
    seconds: float


@contextlib.contextmanager
def _worker(folder: Path) -> Iterator[tuple[str, Worker]]:
    """A dispatcher and a worker: the dispatcher's address, the worker."""
    (folder / "token").write_text("bench")
    with _part("dispatcher", folder, "dispatcher") as dispatcher:
        address = dispatcher.said()["address"]
        flags = ["--dispatcher", address, "--path", str(REPO)]
        with _part("worker", folder, "worker", *flags, metrics="127.0.0.1:0") as worker:
            yield address, Worker(worker.pid, worker.said()["metrics"])


def _rows_made(worker: Worker) -> float:
    """Since it started, those that were made again included."""
    with urllib.request.urlopen(f"http://{worker.metrics}/metrics", timeout=10) as page:
        told = dict(
            re.findall(r"^distributed_input_worker_(\w+) (\S+)$", page.read().decode(), re.M)
        )
    sent, shared, again = (told[f"{name}rows_total"] for name in ("", "shared_", "replayed_"))
    return float(sent) - float(shared) + float(again)


def measure(
    folder: Path, address: str, worker: Worker, epochs: int, jobs: int, seeds: bool
) -> Cost:
    """Let so many jobs read so many epochs, all of one seed or each of its own."""
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
            sidecar = stack.enter_context(_part("sidecar", folder, f"{run}-{job}", *flags))
            sidecar.said()
            readers.append(_reader(f"{run}-{job}", shared, epochs))
        began, before, made = time.perf_counter(), cpu_seconds([worker.pid]), _rows_made(worker)
        for reader in readers:
            assert reader.stdin
            reader.stdin.write(b"go\n")
            reader.stdin.close()
        rows = [int((reader.stdout or sys.stdin).readline()) for reader in readers]
        seconds, cpu = time.perf_counter() - began, cpu_seconds([worker.pid]) - before
        assert len(set(rows)) == 1, rows
        for reader in readers:
            reader.wait(30)
        made = (_rows_made(worker) - made) / rows[0]
    return Cost(round(cpu, 2), round(made, 3), round(seconds, 2))


def _reader(job: str, shared: str, epochs: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _READ, job, str(epochs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"DISTRIBUTED_INPUT_DIR": shared, "PATH": "/usr/bin:/bin"},
        cwd=REPO,
    )


def _config(seed: int, epochs: int) -> dict[str, Any]:
    dataset = {"entryPoint": TARGET, "args": {"folder": "data"}, "source": {"path": str(REPO)}}
    spec = {"dataset": dataset, "seed": seed, "epochs": epochs}
    resource = DistributedInput.model_validate(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "bench"}, "spec": spec}
    )
    return data_plane_config(resource)


if __name__ == "__main__":
    main()
