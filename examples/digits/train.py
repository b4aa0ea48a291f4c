"""Train a small classifier on two replicas, and count the rows that they read.

    distributed-input run examples/digits/input.yaml -- python examples/digits/train.py
    distributed-input run examples/digits/input.yaml --trainers 2 -- python examples/digits/train.py

The same code runs in pods with sidecars from the operator: see cluster.yaml.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any


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
    import tensorflow as tf

    import digits
    import distributed_input as di

LEAST_ACCURACY = 0.95


def replicas() -> tf.distribute.Strategy:
    """Return a strategy over the trainers in TF_CONFIG, over the GPUs, or over two CPU devices.

    TF_CONFIG has precedence. Without GPUs, the CPU is split into two logical devices.
    """
    tf.get_logger().setLevel("ERROR")
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def build_model() -> tf.keras.Model:
    """Return a model: logits of ten classes from images [b, 8, 8, 1].

    b may be 0 in an epoch's last step. The layers are dense, because TensorFlow's convolution on
    CPUs fails on a batch without rows.
    """
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input([8, 8, 1]),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(256, activation="relu"),
            tf.keras.layers.Dense(256, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def build_step(strategy: tf.distribute.Strategy, model: tf.keras.Model) -> Callable[[Any], Any]:
    """Return a function that trains on the batches of one step.

    The function returns the sum of the rows' losses and the rows' ids, over all replicas of all
    trainers.
    """
    with strategy.scope():
        optimizer = tf.keras.optimizers.Adam(3e-3)
        optimizer.build(model.trainable_variables)

    def on_replica(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["label"], model(batch["image"], training=True)
            )
            loss = tf.reduce_sum(losses) / digits.BATCH
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return tf.reduce_sum(losses)

    @tf.function
    def step(batch: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
        losses = strategy.run(on_replica, args=(batch,))
        return strategy.reduce("SUM", losses, axis=None), strategy.gather(batch["id"], axis=0)

    return step


def account(seen: Counter[int], wanted: set[int]) -> str:
    """Return a summary of an epoch. Exit if not every row arrived exactly once."""
    if seen != Counter(wanted):
        sys.exit(
            f"{seen.total()} rows, {len(seen)} different: {len(wanted - set(seen))} rows are "
            f"missing and {sum(n > 1 for n in seen.values())} came more than once"
        )
    return f"{seen.total()} rows, each exactly once"


def accuracy(model: tf.keras.Model) -> float:
    """Return the accuracy on the test part, read in this process with the same dataset_fn."""
    right = total = 0
    for batch in digits.dataset_fn(tf.distribute.InputContext(), part="test"):
        guess = tf.argmax(model(batch["image"], training=False), axis=1)
        right += int(tf.reduce_sum(tf.cast(guess == batch["label"], tf.int32)))
        total += len(guess)
    return right / total


def main() -> None:
    """Train, then test. Exit with 1 if rows are lost or repeated, or the accuracy is too low."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    epochs = parser.parse_args().epochs

    tf.keras.utils.set_random_seed(0)
    strategy = replicas()
    with strategy.scope():
        model = build_model()
    step = build_step(strategy, model)

    with di.connect() as train:
        dataset = train.distribute(strategy)
        for epoch in range(1, epochs + 1):
            start, loss, seen = time.perf_counter(), 0.0, Counter[int]()
            for batch in dataset:
                losses, ids = step(batch)
                loss += float(losses)
                seen.update(ids.numpy().tolist())
            delivered = account(seen, digits.ids("train"))
            seconds = time.perf_counter() - start
            print(f"epoch {epoch:2}  loss {loss / len(seen):.4f}  {delivered}  {seconds:.1f} s")

    result = accuracy(model)
    print(f"test accuracy {result:.3f}")
    if result < LEAST_ACCURACY:
        sys.exit(f"test accuracy {result:.3f} is below {LEAST_ACCURACY}: train longer (--epochs)")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
