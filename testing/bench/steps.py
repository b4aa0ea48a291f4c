"""Measure the time of a step if the dataset is not the bottleneck.

Run `python -m testing.bench.steps`. The trainer waits 20 ms in each step, as for an accelerator.
The dataset needs about 2 ms of CPU for a batch. The command compares the time of a step, its wait
for rows included, with the strategy's own `distribute_datasets_from_function`.

With `--trainers 2 4`, the command measures the steps a second of several trainers that only read,
for each value of `spec.batching.remainder`. Trainers must agree on the end of an epoch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testing.bench.case import LOCAL, OURS, REPO
from testing.bench.processes import run_command

if TYPE_CHECKING:
    import tensorflow as tf

BATCH = 32
_MODULE = "testing.bench.steps"
_SIZE = 96  # a batch of images of 96x96 pixels takes about 2 ms
_STEP_SECONDS = 0.02
_WARM_UP = 50
REMAINDERS = ("Keep", "Drop", "Pad")
_READ_WARM_UP, _READ_STEPS = 200, 1500


def dataset_fn(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return an endless dataset of batches float32 [b, 96, 96, 3]."""
    import tensorflow as tf

    def image(number: tf.Tensor) -> tf.Tensor:
        pixels = tf.random.stateless_uniform([_SIZE, _SIZE, 3], [number, 1])
        return tf.image.adjust_contrast(pixels, 1.5)

    rows = tf.data.Dataset.range(1 << 40)
    rows = rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return rows.map(image).batch(ctx.get_per_replica_batch_size(BATCH))


def small_rows(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return 400,000 rows of 264 bytes."""
    import tensorflow as tf

    def row(number: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"id": number, "x": tf.fill([64], tf.cast(number, tf.float32))}

    rows = tf.data.Dataset.range(400_000).map(row)
    return rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)


def read() -> float:
    """Return the seconds of one step, as the mean of many steps of a trainer that only reads."""
    import distributed_input as di

    with di.connect() as data:
        for number, _ in enumerate(data.numpy()):
            if number == _READ_WARM_UP:
                began = time.perf_counter()
            if number == _READ_WARM_UP + _READ_STEPS:
                return (time.perf_counter() - began) / _READ_STEPS
    raise RuntimeError("the dataset is too small")


def train(system: str, steps: int) -> list[float]:
    """Return the seconds of each step after the warm-up."""
    import tensorflow as tf

    batches = _batches(system, tf.distribute.OneDeviceStrategy("/cpu:0"))
    found = []
    for _ in range(_WARM_UP + steps):
        began = time.perf_counter()
        next(batches)
        time.sleep(_STEP_SECONDS)
        found.append(time.perf_counter() - began)
    return found[_WARM_UP:]


def _batches(system: str, strategy: Any) -> Iterator[Any]:
    if system == OURS:
        import distributed_input as di

        return iter(di.connect().distribute(strategy))
    return iter(strategy.distribute_datasets_from_function(_prefetched))


def _prefetched(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    import tensorflow as tf

    return dataset_fn(ctx).prefetch(tf.data.AUTOTUNE)


def measure(system: str, options: argparse.Namespace) -> list[float]:
    """Run one trainer. Return the seconds of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "steps.json"
        command = [sys.executable, "-m", _MODULE, "--train", system]
        command += ["--steps", str(options.steps), "--to", str(found)]
        if system == OURS:
            flags = ("--workers", options.workers)
            command = [*run_command(Path(folder), f"{_MODULE}:dataset_fn", *flags), *command]
        subprocess.run(command, cwd=REPO, check=True, stdout=subprocess.DEVNULL)
        seconds: list[float] = json.loads(found.read_text())
        return seconds


def measure_remainder(remainder: str, trainers: int, workers: str) -> float:
    """Return the steps a second of several trainers, as their mean."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--workers", workers, "--trainers", str(trainers))
        batching = {"globalBatchSize": 64, "remainder": remainder}
        run = run_command(Path(folder), f"{_MODULE}:small_rows", *flags, batching=batching)
        run += [sys.executable, "-m", _MODULE, "--read", folder]
        subprocess.run(run, cwd=REPO, check=True, stdout=subprocess.DEVNULL)
        return 1 / statistics.mean(float(found.read_text()) for found in Path(folder).glob("*.txt"))


def compare_remainders(options: argparse.Namespace) -> None:
    """Measure all remainders in turn, and print their rates divided by that of the first."""
    for trainers in options.trainers:
        rates = []
        for number in range(options.rounds):
            order = REMAINDERS if number % 2 else REMAINDERS[::-1]
            found = {one: measure_remainder(one, trainers, options.workers) for one in order}
            rates.append(found)
            print(f"{trainers} trainers, round {number + 1}: {_text(found)} steps/s", flush=True)
        for one in REMAINDERS[1:]:
            some = [found[one] / found[REMAINDERS[0]] for found in rates]
            print(f"{trainers} trainers, {one} / {REMAINDERS[0]}: {_spread(some)}", flush=True)


def summary(seconds: list[float]) -> dict[str, float]:
    """Return mean, median and 99th percentile in milliseconds."""
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return {"mean": statistics.mean(seconds) * 1e3, "median": p50, "p99": p99}


def _text(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items())


def _spread(some: list[float]) -> str:
    return f"{statistics.median(some):.3f} ({min(some):.3f} to {max(some):.3f})"


def main() -> None:
    """Measure both systems in turn, or run the trainer of one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--steps", type=int, default=500, help="of a measurement. Default: 500")
    parser.add_argument("--workers", default="1", help="of `distributed-input run`. Default: 1")
    parser.add_argument("--trainers", type=int, nargs="+", help="compare the remainders")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        options.to.write_text(json.dumps(train(options.train, options.steps)))
        return
    if options.read:
        (options.read / f"{os.getpid()}.txt").write_text(str(read()))
        return
    if options.trainers:
        compare_remainders(options)
        return
    ratios: dict[str, list[float]] = {}
    for number in range(options.rounds):
        order = (LOCAL, OURS) if number % 2 else (OURS, LOCAL)
        found = {system: summary(measure(system, options)) for system in order}
        for system, one in found.items():
            print(f"round {number + 1}: {system}: {_text(one)} ms", flush=True)
        for name in found[OURS]:
            ratios.setdefault(name, []).append(found[OURS][name] / found[LOCAL][name])
    for name, some in ratios.items():
        print(f"{name}: ratio {_spread(some)}")


if __name__ == "__main__":
    main()
