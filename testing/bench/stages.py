"""What stages cost while they are used: `python -m testing.bench.stages`.

One pipeline, read plain, as a mixture, packed, with skips, and with lineage. Each round reads all
of them, one after the other, each with new processes. Prints rows of the dataset per second.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import distributed_input

TOKENS, PACKED, STEP, SOURCES, SPLITS = 256, 8, 64, 8, 64
_ENTRY = {
    "function": "testing.bench.stages:dataset_fn",
    "source": {"type": "Path", "path": str(Path(__file__).parents[2])},
}
_SKIP: Mapping[str, Any] = {"badRecords": {"onError": "Skip", "maxPerSplit": 100_000}}
CASES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "lineage() of each step": {},
    "mixture of 8 sources": {
        "mixture": {"weights": {f"s{one}": 1 + one % 3 for one in range(SOURCES)}}
    },
    "packed by 8, BestFit": {"packing": {"length": TOKENS * PACKED}},
    "the same, balanceWindow: 256": {"packing": {"length": TOKENS * PACKED, "balanceWindow": 256}},
    "onError: Skip, no bad record": _SKIP,
    "onError: Skip, 1 % bad records": _SKIP,
}


def dataset_fn(context: Any, bad: bool = False) -> Any:
    """Return rows of random tokens, 1 % of which fail if `bad`."""
    import tensorflow as tf

    def row(number: Any) -> dict[str, Any]:
        text = tf.strings.as_string(number)
        if bad:
            text = tf.where(number % 100 == 33, "corrupt", text)
        first = tf.strings.to_number(text, tf.int64)
        return {"tokens": first + tf.random.uniform([TOKENS], maxval=9, dtype=tf.int64)}

    numbers = tf.data.Dataset.range(1 << 24)
    numbers = numbers.shard(context.num_input_pipelines, context.input_pipeline_id)
    return numbers.shuffle(1000).map(row, num_parallel_calls=tf.data.AUTOTUNE)


def rate(name: str, seconds: float) -> float:
    """Return the rows per second of a case, after as long a time that does not count."""
    packed = "packing" in CASES[name]
    resource = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": "stages"},
        "spec": {
            "dataset": {
                "type": "EntryPoint",
                "entryPoint": {**_ENTRY, "args": {"bad": "1 %" in name}},
            },
            "batching": {"globalBatchSize": STEP // PACKED if packed else STEP},
            "numSplits": SPLITS,
            **CASES[name],
        },
    }
    lineage = name.startswith("lineage")
    with (
        distributed_input.local(resource, workers=1),
        distributed_input.connect("stages", lineage=lineage) as data,
    ):
        began = at = time.monotonic()
        steps = first = 0
        for _ in data.numpy():
            if lineage:
                data.lineage()
            steps += 1
            now = time.monotonic()
            if steps == 1:
                began, at, first = now, now, steps
            elif now - began < seconds:
                first, at = steps, now
            elif now - began >= 2 * seconds:
                break
        return (steps - first) * STEP / (now - at)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.stages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="Default: 3")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each case. Default: 5")
    args = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(args.rounds):
        for name, rates in found.items():
            rates.append(rate(name, args.seconds))
            print(f"{name}: {rates[-1]:,.0f} rows/s", flush=True)
    print("| Case | Rows/s | Of plain |\n|---|---|---|")
    for name, rates in found.items():
        ratios = [one / plain for one, plain in zip(rates, found["plain"], strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {statistics.median(rates):,.0f} | {spread} |")


if __name__ == "__main__":
    main()
