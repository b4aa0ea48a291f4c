"""Read the photos as a trainer does. Print rows/s and check the count of every id.

    distributed-input run examples/photos/input.yaml -- python examples/photos/train.py

The same code runs in a pod with a sidecar from the operator. The step computes the mean and the
standard deviation of the pixels.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the output of TensorFlow's libraries to stderr while they load, but not exceptions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


with quiet():
    import numpy as np
    import tensorflow as tf

    import distributed_input as di
    import photos


def moments(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return count, sum and sum of squares of a replica's pixels: float32 [3]."""
    pixels = tf.cast(batch["image"], tf.float32) / 255.0
    count = tf.cast(tf.size(pixels), tf.float32)
    return tf.stack([count, tf.reduce_sum(pixels), tf.reduce_sum(pixels**2)])


def account(seen: Counter[int], wanted: set[int]) -> str:
    """Return a summary of an epoch. Exit if not every row arrived exactly once."""
    if seen != Counter(wanted):
        sys.exit(
            f"{seen.total()} rows, {len(seen)} different: {len(wanted - set(seen))} rows are "
            f"missing and {sum(n > 1 for n in seen.values())} came more than once"
        )
    return f"{seen.total()} rows, each exactly once"


def main() -> None:
    """Read all epochs. Exit with 1 if rows are lost or repeated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs

    tf.get_logger().setLevel("ERROR")
    strategy = tf.distribute.MirroredStrategy()  # over the GPUs, or the CPU if there are none

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(moments, args=(batch,)), axis=None)

    with di.connect() as train:
        dataset = train.distribute(strategy)
        for epoch in range(1, epochs + 1):
            start, sums, seen = time.perf_counter(), np.zeros(3), Counter[int]()
            for batch in dataset:
                sums += step(batch).numpy()
                for ids in strategy.experimental_local_results(batch["id"]):
                    seen.update(np.asarray(ids).tolist())
            delivered = account(seen, set(range(photos.ROWS)))
            rate = photos.ROWS / (time.perf_counter() - start)
            mean = sums[1] / sums[0]
            deviation = (sums[2] / sums[0] - mean**2) ** 0.5
            print(
                f"epoch {epoch:2}  pixels {mean:.3f} ± {deviation:.3f}  "
                f"{delivered}  {rate:.0f} rows/s"
            )


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
