"""Measure a worker that shares its host with a trainer.

Run `python -m testing.bench.local_worker`. The trainer alternates between phases with light steps,
which wait for rows, and phases with heavy steps, which compute on all CPUs. The dataset needs more
CPU than there is. The command prints, for each number of workers of `distributed-input run`:

- the time of a heavy step without its wait for rows, compared with a trainer that has no input;
- the CPUs that the workers used, second by second within a phase;
- the rows per second.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from testing.bench.case import REPO
from testing.bench.processes import cpu_seconds, run_command, with_descendants

_BATCH = 16
_HASHED = bytes(8 << 20)
_SAMPLE_SECONDS = 0.25


def dataset_fn(context: Any) -> Any:
    """Return endless rows that take some milliseconds of one CPU each."""
    import tensorflow as tf

    def row(number: tf.Tensor) -> tf.Tensor:
        pixels = tf.reshape(tf.range(384 * 384 * 3) + tf.cast(number, tf.int32), (384, 384, 3))
        image = tf.cast(pixels % 251, tf.uint8)
        for _ in range(2):
            image = tf.io.decode_jpeg(tf.io.encode_jpeg(image), channels=3)
        return tf.ensure_shape(image, (384, 384, 3))[::8, ::8]

    return tf.data.Dataset.range(1 << 40).map(row)


def train(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Run the phases in turn. Return the time of each step."""
    cpus = os.cpu_count() or 1
    batches = _batches() if options["input"] else iter(lambda: None, 0)
    next(batches)
    steps = []
    with ThreadPoolExecutor(cpus) as pool:
        for phase in range(2 * options["phases"]):
            heavy = bool(phase % 2)
            end = time.monotonic() + options["seconds"]
            while (began := time.monotonic()) < end:
                next(batches)
                got = time.monotonic()
                if heavy:
                    list(pool.map(_burn, [options["rounds"]] * cpus))
                else:
                    time.sleep(0.02)
                steps.append(
                    {
                        "phase": phase,
                        "began": began,
                        "wait": got - began,
                        "compute": time.monotonic() - got,
                    }
                )
    return steps


def _batches() -> Iterator[Any]:
    import distributed_input as di

    return iter(di.connect().numpy())


def _burn(rounds: int) -> None:
    for _ in range(rounds):
        hashlib.sha256(_HASHED).digest()  # releases the interpreter's lock


def measure(workers: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run the trainer once. Return its steps and the CPU use of the workers over time."""
    with tempfile.TemporaryDirectory() as folder:
        steps_file = Path(folder) / "steps.json"
        settings = {**vars(options), "input": workers != "none", "workers": workers}
        command = [sys.executable, "-m", "testing.bench.local_worker", "--train"]
        command += [json.dumps(settings), "--steps", str(steps_file)]
        if workers != "none":
            fields = {"batching": {"globalBatchSize": _BATCH}, "sidecar": {"buffer": "64Mi"}}
            entry_point = "testing.bench.local_worker:dataset_fn"
            run = run_command(Path(folder), entry_point, "--workers", workers, **fields)
            command = [*run, *command]
        process = subprocess.Popen(command, cwd=REPO)
        used: list[tuple[float, float]] = []
        while process.poll() is None:
            used.append((time.monotonic(), cpu_seconds(_workers(process.pid))))
            time.sleep(_SAMPLE_SECONDS)
        if process.returncode:
            raise SystemExit(f"the trainer ended with status {process.returncode}")
        return {"steps": json.loads(steps_file.read_text()), "used": used}


def _workers(pid: int) -> list[int]:
    found = []
    for process in with_descendants([pid]):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "distributed_input.worker" in process.cmdline():
                found.append(process.pid)
    return found


def summarize(measured: Mapping[str, Any], alone: float | None) -> str:
    """Return the measurements of one run as text. The first two phases count as a warm-up."""
    steps = [step for step in measured["steps"] if step["phase"] >= 2]
    heavy = [step for step in steps if step["phase"] % 2]
    compute = statistics.median(step["compute"] for step in heavy)
    late = sorted(step["compute"] for step in heavy)[int(0.9 * len(heavy))]
    slower = f" ({100 * (compute / alone - 1):+.1f} %)" if alone else ""
    spent = max(s["began"] for s in steps) - min(s["began"] for s in steps)
    wait = statistics.mean(step["wait"] for step in heavy)
    lines = [
        f"heavy step: median {compute * 1e3:.0f} ms{slower}, p90 {late * 1e3:.0f} ms; "
        f"wait for rows {wait * 1e3:.0f} ms; {len(heavy)} heavy of {len(steps)} steps; "
        f"{_BATCH * len(steps) / spent:.0f} rows/s"
    ]
    for name, odd in (("light", 0), ("heavy", 1)):
        by_time = _use_by_time(steps, measured["used"], odd)
        line = " ".join(f"{cpus:.2f}" for _, cpus in sorted(by_time.items()))
        lines.append(f"  CPUs of the workers in {name} phases, by quarters of a second: {line}")
    return "\n".join(lines)


def _use_by_time(
    steps: Sequence[Mapping[str, Any]], used: Sequence[tuple[float, float]], odd: int
) -> dict[int, float]:
    """Return the mean CPU use by the number of samples since the begin of a phase."""
    begins: dict[int, float] = {}
    for step in steps:
        begins.setdefault(step["phase"], step["began"])
    found = collections.defaultdict(list)
    for (before, then), (after, now) in itertools.pairwise(used):
        started = [phase for phase, begin in begins.items() if begin <= before]
        if started and max(started) % 2 == odd:
            since = round((before - begins[max(started)]) / _SAMPLE_SECONDS)
            found[since].append((now - then) / (after - before))
    return {since: statistics.mean(some) for since, some in found.items() if len(some) > 1}


def main() -> None:
    """Measure all numbers of workers, or run the trainer of one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phases", type=int, default=4, help="phases of each kind. Default: 4")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a phase. Default: 5")
    parser.add_argument("--rounds", type=int, default=4, help="work of a heavy step. Default: 4")
    parser.add_argument("--workers", nargs="+", default=["none", "1", "2", "local"])
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        threading.excepthook = lambda _: os._exit(1)
        options.steps.write_text(json.dumps(train(options.train)))
        return
    del options.train, options.steps
    alone = None
    for workers in options.workers:
        measured = measure(workers, options)
        print(f"workers {workers}: {summarize(measured, alone)}", flush=True)
        if workers == "none":
            steps = [s for s in measured["steps"] if s["phase"] >= 2 and s["phase"] % 2]
            alone = statistics.median(step["compute"] for step in steps)


if __name__ == "__main__":
    main()
