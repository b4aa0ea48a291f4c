"""The cost of several jobs of one dataset for one worker, compared with one job.

    python -m testing.bench.jobs [--jobs 8] [--rounds 5] [--epochs 1]

Every job has its own trainer process and sidecar, and reads the photos as fast as possible. Each
round measures on the same worker, in turn: one job; all jobs with the same seed, which share rows;
and two jobs with different seeds, which cannot share. Prints medians with their range.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import time
import urllib.request
from statistics import median
from typing import Any, NamedTuple

from testing.bench.case import REPO
from testing.bench.processes import cpu_seconds
from testing.bench.systems import default_spec, sidecar
from testing.integration.cluster import Cluster, Part

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
    with Cluster() as cluster:
        cluster.add_workers(1, "--path", str(REPO), "--metrics-listen", "127.0.0.1:0")
        measure(cluster, 1, 1, False)  # warm up: write files, read pages
        for number in range(options.rounds):
            order = list(settings)
            for name in order[number % 3 :] + order[: number % 3]:
                found[name].append(measure(cluster, epochs, *settings[name]))
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


def _rows_computed(worker: Part) -> float:
    """Return the rows that the worker has computed since its start, with replayed rows."""
    address = worker.wait_ready()["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        metrics = dict(
            re.findall(r"^distributed_input_worker_(\w+) (\S+)$", page.read().decode(), re.M)
        )
    sent, shared, replayed = (metrics[f"{name}rows_total"] for name in ("", "shared_", "replayed_"))
    return float(sent) - float(shared) + float(replayed)


def measure(cluster: Cluster, epochs: int, jobs: int, seeds: bool) -> Cost:
    """Let this number of jobs read this number of epochs. `seeds`: each job has its own seed."""
    (worker,) = cluster.workers
    run = f"{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        readers = []
        for job in range(jobs):
            seed = job if seeds else 0
            one = default_spec(TARGET, {"folder": "data"}, seed=seed, epochs=epochs)
            shared = stack.enter_context(sidecar(cluster, one)).shared
            readers.append(_reader(f"{run}-{job}", str(shared), epochs))
        computed = _rows_computed(worker)
        began, before = time.perf_counter(), cpu_seconds([worker.pid])
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


if __name__ == "__main__":
    main()
