"""Measure a trainer whose own worker comes first, and worker pods for what is missing.

Run `python -m testing.bench.host_first --csv host_first.csv`. The trainer alternates between phases
with light steps, which leave the CPUs idle, and phases with heavy steps, which compute on all of
them. The worker beside it uses idle CPUs. Every 5 s, the operator's own functions compute from the
dispatcher's status how many worker pods there should be. This program starts and stops them.

The worker pods run on this machine too, but their rows wait instead of computing: they represent
other machines, whose CPUs the trainer does not see.

With `--draw host_first.csv host_first.svg`, and in an environment with matplotlib, the program
draws an earlier measurement.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed_input.api.resource.sections.workers import AutoscalingSpec
from distributed_input.client.consumer import Consumer
from distributed_input.client.input import Input
from distributed_input_operator.autoscaling.decision import (
    AutoscalingState,
    Observation,
    decide,
)
from distributed_input_operator.autoscaling.demand import needed_workers, useful_workers
from distributed_input_operator.autoscaling.rates import Measurement, RateWindow
from distributed_input_operator.controller.status_answer import parse_answer
from testing.bench.case import REPO
from testing.integration.cluster import Cluster, Part, spec

POD = "trainer"
BATCH = 16
_BLOCK = bytes(1 << 20)
_MARK = "is_worker_pod"  # a file in a folder on the Python path of emulated worker pods
_SAMPLE_SECONDS, _DECISION_SECONDS = 1.0, 5.0
COLUMNS = ("seconds", "heavy", "local_cpus", "local_share", "needed_workers", "workers", "stall")


def dataset_fn(context: Any, milliseconds: float, blocks: int) -> Iterator[dict[str, Any]]:
    """Yield endless rows that compute in the worker beside the trainer, and wait in others."""
    import numpy as np

    waits = any((Path(folder) / _MARK).exists() for folder in sys.path)
    for number in range(40):
        if waits:
            time.sleep(milliseconds / 1e3)
        else:
            _burn(blocks)
        yield {"id": np.int64(number), "pixels": np.zeros(64 << 10, np.uint8)}


def _burn(blocks: int) -> None:
    for _ in range(blocks):
        hashlib.sha256(_BLOCK).digest()  # releases the interpreter's lock


@dataclass
class Trainer:
    """A loop in a thread, with light and heavy steps in turn."""

    options: argparse.Namespace
    shared: Path
    heavy: bool = False
    wait_seconds: float = 0.0
    steps: list[tuple[bool, float, float]] = field(default_factory=list)
    """Of each step: whether it is heavy, when it began, and how long it waited for rows."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        cpus = len(os.sched_getaffinity(0))
        with Input(Consumer(self.shared, "", 60.0)) as train, ThreadPoolExecutor(cpus) as pool:
            batches = self._batches(train)
            while not self.stopping.is_set():
                began = time.monotonic()
                next(batches)
                waited = time.monotonic() - began
                self.wait_seconds += waited
                self.steps.append((self.heavy, began, waited))
                end = time.monotonic() + self.options.step_seconds
                if self.heavy:
                    list(pool.map(_burn_until, [end] * cpus))
                else:
                    time.sleep(self.options.step_seconds)

    def _batches(self, train: Input) -> Iterator[Any]:
        while True:
            yield from train.numpy()


def _burn_until(end: float) -> None:
    while time.monotonic() < end:
        _burn(4)


class WorkerPods:
    """The emulated worker pods: this number of processes."""

    def __init__(self, cluster: Cluster, marked: Path) -> None:
        self._cluster, self._marked = cluster, marked
        self.running: list[Part] = []

    def scale(self, count: int) -> None:
        """Start or stop processes."""
        if count > len(self.running):
            flags = (f"--path={REPO}", f"--path={self._marked}", "--parallelism=1")
            self.running += self._cluster.add_workers(count - len(self.running), *flags)
        while count < len(self.running):
            self.running.pop().stop()


@dataclass
class Autoscaler:
    """The operator's functions, with this program's clock."""

    bounds: AutoscalingSpec
    window: RateWindow = field(default_factory=RateWindow)
    state: AutoscalingState = field(default_factory=lambda: AutoscalingState(0))
    needed: float | None = None

    def decide(self, status: Any, ready: int) -> int:
        """Return the number of worker pods from now on."""
        now = time.monotonic()
        self.window = self.window.add(parse_answer(status.SerializeToString(), now))
        measured = self.window.measurement or Measurement()
        self.needed = needed_workers(measured, 1)
        observed = Observation(self.needed, measured.consumers, useful_workers(measured), ready)
        self.state = decide(self.state, self.bounds, observed, now).state
        return self.state.desired


def measure(options: argparse.Namespace) -> list[dict[str, float]]:
    """Run all phases. Return a sample of every second."""
    one = spec(
        "testing.bench.host_first:dataset_fn",
        {"milliseconds": options.row_milliseconds, "blocks": _blocks(options.row_milliseconds)},
        globalBatchSize=BATCH, partitions=4, numSplits=64, buffer="8Mi",
    )  # fmt: skip
    with Cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / _MARK).touch()
        cpus = len(os.sched_getaffinity(0))
        flags = (f"--path={REPO}", f"--pod={POD}", "--idle-cpus", f"--parallelism={cpus}")
        cluster.add_workers(1, *flags)
        (sidecar,) = cluster.add_sidecars({"train": one}, pods=[POD])
        trainer = Trainer(options, sidecar.shared)
        thread = threading.Thread(target=trainer.run, daemon=True)
        thread.start()
        try:
            return _observe(options, cluster, trainer, WorkerPods(cluster, Path(folder)))
        finally:
            trainer.stopping.set()
            thread.join(30)


def _blocks(milliseconds: float) -> int:
    """Return how often `_burn` hashes in this time on an idle CPU: the best of some attempts."""
    rates = []
    for _ in range(20):
        began = time.process_time()
        _burn(8)
        rates.append(8 / (time.process_time() - began))
    return max(1, round(max(rates) * milliseconds / 1e3))


def _observe(
    options: argparse.Namespace, cluster: Cluster, trainer: Trainer, pods: WorkerPods
) -> list[dict[str, float]]:
    scaler = Autoscaler(
        AutoscalingSpec.model_validate(
            {
                "minReplicas": 0,
                "maxReplicas": options.max_workers,
                "stabilizationWindowSeconds": options.window,
            }
        )
    )
    began = decided = time.monotonic()
    before: Any = None
    waited, found = 0.0, []
    for second in range(int(2 * options.phases * options.seconds)):
        time.sleep(max(0.0, began + second - time.monotonic()))
        trainer.heavy = bool(second // options.seconds % 2)
        status = cluster.status()
        if time.monotonic() - decided >= _DECISION_SECONDS:
            decided = time.monotonic()
            pods.scale(scaler.decide(status, len(pods.running)))
        if before is not None:
            wait, waited = trainer.wait_seconds - waited, trainer.wait_seconds
            found.append(
                {
                    "seconds": second,
                    "heavy": int(trainer.heavy),
                    "local_cpus": sum(w.parallelism for w in status.workers if w.pod),
                    "local_share": _local_share(before, status),
                    "needed_workers": scaler.needed or 0.0,
                    "workers": len(pods.running),
                    "stall": min(1.0, wait / _SAMPLE_SECONDS),
                }
            )
        before = status
    return found


def _local_share(before: Any, after: Any) -> float:
    """Return the share of the rows between two status responses that the own worker sent.

    It is not a number if there were no rows.
    """
    then = {one.worker_id: one.rows for one in before.workers}
    rows = {one.worker_id: one.rows - then.get(one.worker_id, 0) for one in after.workers}
    own = sum(rows[one.worker_id] for one in after.workers if one.pod)
    return own / total if (total := sum(rows.values())) else float("nan")


def summarize(samples: Sequence[Mapping[str, float]], warm_up: float) -> str:
    """Return the means of each kind of phase as text, without the warm-up."""
    lines = []
    for name, heavy in (("light", 0), ("heavy", 1)):
        some = [one for one in samples if one["heavy"] == heavy and one["seconds"] >= warm_up]
        means = {key: _mean([one[key] for one in some]) for key in COLUMNS[2:]}
        lines.append(
            f"{name} phases: stall {100 * means['stall']:.1f} %, local CPUs "
            f"{means['local_cpus']:.1f}, local share of rows {100 * means['local_share']:.0f} %, "
            f"needed worker pods {means['needed_workers']:.2f}, running {means['workers']:.2f}"
        )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.mean(known) if known else math.nan


def draw(source: Path, picture: Path) -> None:
    """Draw an earlier measurement."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with source.open() as file:
        samples = [
            {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
        ]
    times = [one["seconds"] for one in samples]
    figure, axes = pyplot.subplots(3, 1, figsize=(9, 6.5), sharex=True)
    labels = ("local share of rows", "worker pods", "stall")
    for panel, label, keys in zip(
        axes, labels, (("local_share",), ("workers", "needed_workers"), ("stall",)), strict=True
    ):
        for key in keys:
            panel.plot(times, [one[key] for one in samples], label=key.replace("_", " "))
        for one in samples:
            if one["heavy"]:
                panel.axvspan(one["seconds"] - 0.5, one["seconds"] + 0.5, color="0.9", lw=0)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
    axes[1].legend(frameon=False)
    axes[-1].set_xlabel("seconds; grey: heavy steps")
    figure.tight_layout()
    figure.savefig(picture)


def main() -> None:
    """Measure, or draw an earlier measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, help="file to write: one row per second")
    parser.add_argument("--draw", type=Path, nargs=2, metavar=("CSV", "SVG"))
    parser.add_argument("--phases", type=int, default=3, help="phases of each kind. Default: 3")
    parser.add_argument("--seconds", type=int, default=40, help="of a phase. Default: 40")
    parser.add_argument("--step-seconds", type=float, default=0.4, help="of a step. Default: 0.4")
    parser.add_argument("--row-milliseconds", type=float, default=15.0, help="Default: 15")
    parser.add_argument("--window", type=int, default=20, help="stabilization. Default: 20")
    parser.add_argument("--max-workers", type=int, default=6, help="Default: 6")
    parser.add_argument("--warm-up", type=float, default=20.0, help="not summarized. Default: 20")
    options = parser.parse_args()
    if options.draw:
        draw(*options.draw)
        return
    samples = measure(options)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(samples)
    print(summarize(samples, options.warm_up))


if __name__ == "__main__":
    main()
