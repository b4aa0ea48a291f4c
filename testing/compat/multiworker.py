"""A trainer of `MultiWorkerMirroredStrategy` that reads its inputs and returns the rows.

`trainer_processes.run_trainers` runs several of these trainers. The environment has
DISTRIBUTED_INPUT_DIR and TF_CONFIG. The argument is a pattern for TFRecord files of eight-byte
numbers. test_multiworker.py compares the trainers' results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

import distributed_input
from testing.compat.row_count_metric import RowCount
from testing.processes.forks import own_arguments, write_results

ROWS, BATCH = 100, 16
Strategy = tf.distribute.Strategy


def numbers(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return 0, 1, ... 99 in batches."""
    rows = tf.data.Dataset.range(ROWS).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return rows.batch(ctx.get_per_replica_batch_size(BATCH))


def local(strategy: Strategy, value: Any) -> list[int]:
    """Return the rows of this trainer."""
    return [int(row) for one in strategy.experimental_local_results(value) for row in one.numpy()]


def by_dataset_fn(strategy: Strategy, train: distributed_input.Input) -> Any:
    """Return the rows of every step of two epochs."""
    dist = train.distribute(strategy, numbers)
    return [[local(strategy, rows) for rows in dist] for _ in range(2)]


def by_files(strategy: Strategy, train: distributed_input.Input, pattern: str) -> Any:
    """Return the rows of every step, from a plain dataset of files."""
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    rows = files.interleave(tf.data.TFRecordDataset)
    rows = rows.map(lambda record: tf.io.decode_raw(record, tf.int64)[0]).batch(BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    dist = train.distribute(strategy, rows.with_options(options))
    return [local(strategy, rows) for rows in dist]


def in_function(strategy: Strategy, train: distributed_input.Input) -> Any:
    """Return (sum, mean) over all trainers for every step of an epoch."""
    iterator = iter(train.distribute(strategy, numbers))

    @tf.function
    def step(iterator: Any) -> Any:
        optional = iterator.get_next_as_optional()
        if not optional.has_value():
            return False, 0.0, 0.0
        rows = strategy.run(lambda rows: tf.cast(rows, tf.float32), args=(optional.get_value(),))
        return (True, strategy.reduce("SUM", rows, axis=0), strategy.reduce("MEAN", rows, axis=0))

    found = []
    while (result := step(iterator))[0]:
        found.append([float(result[1]), float(result[2])])
    return found


def out_of_range(strategy: Strategy, train: distributed_input.Input) -> Any:
    """Return the number of steps before `get_next` raises OutOfRangeError."""
    iterator, steps = iter(train.distribute(strategy, numbers)), 0
    try:
        while True:
            iterator.get_next()
            steps += 1
    except tf.errors.OutOfRangeError:
        return steps


def by_keras(strategy: Strategy, train: distributed_input.Input) -> Any:
    """Return the row counts of `fit`, or its error, with both kinds of input."""

    def lines(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        x = numbers(ctx).map(lambda rows: tf.cast(rows, tf.float32)[:, tf.newaxis] / ROWS)
        return x.map(lambda x: (x, 3 * x + 1))

    def fit(dataset: Any) -> Any:
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
            model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", metrics=[RowCount()])
        try:
            return model.fit(dataset, epochs=2, verbose=0).history["rows"]
        except ValueError as error:
            return str(error).split("{")[0]

    native = strategy.distribute_datasets_from_function(lines)
    return {"distributed_input": fit(train.distribute(strategy, lines)), "native": fit(native)}


INPUTS = ("dataset-fn", "files", "function", "out-of-range", "keras")
"""The names of the inputs."""


def main(argv: Sequence[str]) -> int:
    """Write the results as {name of the input: result}."""
    (pattern,), path = own_arguments(argv)
    warnings.simplefilter("ignore")
    parts: dict[str, Callable[[Strategy, distributed_input.Input], Any]] = {
        "dataset-fn": by_dataset_fn,
        "files": lambda strategy, train: by_files(strategy, train, pattern),
        "function": in_function,
        "out-of-range": out_of_range,
        "keras": by_keras,
    }
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    results: dict[str, Any] = {"replicas": strategy.num_replicas_in_sync}
    for name in INPUTS:
        with distributed_input.connect(name) as train:
            results[name] = parts[name](strategy, train)
    write_results(path, results)
    return 0
