"""The guide "Distributed Input", section by section, with DistributedInput.

Where the guide shows the rows of a step, the input has one split. With more splits, the order
differs from the guide, but is the same for any number of trainers and workers.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input import Input
from distributed_input.api.errors import ConfigError
from testing.compat.behaviour import Reference, behaviour
from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.integration.datasets import element_types
from testing.integration.datasets import rows as datasets
from testing.integration.devices import CPUS

GUIDE = Reference.GUIDE
GLOBAL_BATCH = 16
# TensorFlow warns in the same way.
pytestmark = pytest.mark.filterwarnings(
    "ignore:In AUTO-mode", "ignore:DATA sharding", "ignore:the dataset shards records"
)


@tf.function
def train_step(inputs: Any) -> Any:
    features, labels = inputs
    return labels - 0.3 * features


def ones(count: int = 100, batch: int = GLOBAL_BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(count).batch(batch)


def local(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Return the values of each replica as lists."""
    return [one.numpy().tolist() for one in strategy.experimental_local_results(value)]


# Distributed datasets.


@behaviour(
    GUIDE,
    shows="`for inputs in dataset` without a strategy: batches of 16, then one of 4",
    call="`train.dataset(dataset)`",
)
def test_a_plain_dataset_has_the_same_batches(train: Input) -> None:
    losses = [train_step(inputs).numpy() for inputs in train.dataset(ones())]
    assert [loss.shape for loss in losses] == [(16, 1)] * 6 + [(4, 1)]
    for loss in losses:
        np.testing.assert_allclose(loss, 0.7)


@behaviour(
    GUIDE,
    shows="`experimental_distribute_dataset(dataset)`: a dataset batched by the global batch size",
    call="`train.distribute(strategy, dataset)`",
)
def test_a_distributed_dataset_has_global_batches(train: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS[:1])
    features, labels = next(iter(train.distribute(strategy, ones())))
    assert features.numpy().tolist() == labels.numpy().tolist() == [[1.0]] * 16


@behaviour(
    GUIDE,
    shows="rebatching: each global batch is divided by the replicas, also the partial last one",
    call="`train.distribute(strategy, dataset)`",
)
def test_a_global_batch_is_divided_among_replicas(train: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    dist = train.distribute(strategy, ones(count=40))
    sizes = [[len(one) for one in local(strategy, labels)] for _, labels in dist]
    assert sizes == [[8, 8], [8, 8], [8, 0]]


@behaviour(
    GUIDE,
    shows="`distribute_datasets_from_function(dataset_fn)` as in the guide: sharded by the input"
    " context, batched by `get_per_replica_batch_size`, prefetched",
    call="`train.distribute(strategy, dataset_fn)`",
)
def test_the_dataset_fn_of_the_guide(train: Input) -> None:
    def dataset_fn(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        batch_size = input_context.get_per_replica_batch_size(GLOBAL_BATCH)
        dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(64).batch(16)
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        dataset = dataset.batch(batch_size)
        return dataset.prefetch(2)

    strategy = tf.distribute.MirroredStrategy(CPUS)
    # Four elements of 16 rows, which the guide batches again.
    batches = [local(strategy, labels) for _, labels in train.distribute(strategy, dataset_fn)]
    (step,) = batches
    assert [np.shape(one) for one in step] == [(4, 16, 1), (0,)]


@behaviour(
    GUIDE,
    shows="`tf.distribute.InputOptions`: with or without prefetching to the devices",
    call="`train.distribute(strategy, options=...)`",
    needs="GPUs for the prefetching",
)
@pytest.mark.parametrize("to_device", [True, False])
def test_input_options_do_not_change_the_rows(in_order: Input, to_device: bool) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    options = tf.distribute.InputOptions(
        experimental_fetch_to_device=to_device, experimental_per_replica_buffer_size=2
    )
    dist = in_order.distribute(strategy, tf.data.Dataset.range(8).batch(4), options=options)
    assert [local(strategy, rows) for rows in dist] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


# Iterating.


@behaviour(
    GUIDE,
    shows="`for x in dist_dataset: strategy.run(train_step, args=(x,))`",
    call="`for x in train.distribute(strategy, dataset)`",
)
def test_a_training_loop_reads_every_row(train: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    rows = 0
    for x in train.distribute(strategy, ones()):
        losses = strategy.experimental_local_results(strategy.run(train_step, args=(x,)))
        assert all(np.allclose(loss, 0.7) for loss in losses)
        rows += sum(len(loss) for loss in losses)
    assert rows == 100


@behaviour(
    GUIDE,
    shows="epochs with `steps_per_epoch` calls of `next(iterator)` and a new `iter()` each",
    call="`iter(train.distribute(strategy, dataset))`",
    note="`iter()` begins the next epoch and drops the rest of the last one",
)
def test_a_new_iterator_begins_the_next_epoch(train: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    dist = train.distribute(strategy, ones())
    for _ in range(10):
        iterator = iter(dist)
        for _ in range(5):
            loss = strategy.run(train_step, args=(next(iterator),))
            assert [np.shape(one) for one in local(strategy, loss)] == [(8, 1), (8, 1)]


@behaviour(
    GUIDE,
    shows="at the end, `next()` in a `tf.function` and `get_next()` raise"
    " `tf.errors.OutOfRangeError`; the program can catch it and write a checkpoint",
    call="`train.distribute(strategy)`, `tf.train.Checkpoint(input=train.state)`",
)
def test_a_program_continues_after_out_of_range(train: Input, tmp_path: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    dist = train.distribute(strategy, ones(count=40))
    checkpoint = tf.train.Checkpoint(input=train.state)

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(train_step, args=(next(iterator),))

    for epoch, next_of in enumerate((step, lambda iterator: iterator.get_next())):
        assert steps_until_out_of_range(next_of, iter(dist)) == 3
        assert checkpoint.write(f"{tmp_path}/{epoch}")


def steps_until_out_of_range(next_of: Any, iterator: Any) -> int:
    steps = 0
    try:
        while True:
            next_of(iterator)
            steps += 1
    except tf.errors.OutOfRangeError:
        return steps


@behaviour(
    GUIDE,
    shows="a host training loop: `get_next_as_optional()` in a `tf.function`, with a partial last"
    " batch and an empty replica: `([0 1], [2 3])`, `([4 5], [6 7])`, `([8], [])`",
    call="`iter(train.distribute(strategy, dataset)).get_next_as_optional()`",
)
def test_a_host_training_loop_reads_partial_batches(in_order: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    iterator = iter(in_order.distribute(strategy, tf.data.Dataset.range(9).batch(4)))
    seen: list[list[list[int]]] = []

    def keep(*replicas: Any) -> None:
        seen.append([one.numpy().tolist() for one in replicas])

    @tf.function
    def train_fn(iterator: Any) -> None:
        for _ in tf.range(5):
            optional_data = iterator.get_next_as_optional()
            if not optional_data.has_value():
                break
            results = strategy.run(lambda x: x, args=(optional_data.get_value(),))
            tf.py_function(keep, strategy.experimental_local_results(results), [])

    train_fn(iterator)
    assert seen == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8], []]]


@behaviour(
    GUIDE,
    shows="a host training loop with more `next(iterator)` calls than batches:"
    " `tf.errors.OutOfRangeError`",
    call="`next(iter(train.distribute(strategy, dataset)))`",
)
def test_a_host_training_loop_raises_at_the_end(in_order: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    iterator = iter(in_order.distribute(strategy, tf.data.Dataset.range(9).batch(4)))

    @tf.function
    def train_fn(iterator: Any) -> None:
        for _ in tf.range(2):
            strategy.run(lambda rows: rows, args=(next(iterator),))

    train_fn(iterator)
    with pytest.raises(tf.errors.OutOfRangeError):
        train_fn(iterator)  # one of two steps is left


# element_spec.


@behaviour(
    GUIDE,
    shows="a `tf.function` with `input_signature=[dist_dataset.element_spec]` is traced once",
    call="`train.distribute(strategy, dataset).element_spec`",
)
def test_a_function_with_an_element_spec_is_traced_once(train: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    dist = train.distribute(strategy, ones())
    traced = []

    @tf.function(input_signature=[dist.element_spec])
    def step(per_replica_inputs: Any) -> Any:
        traced.append(per_replica_inputs)
        return strategy.run(lambda inputs: 2 * inputs, args=(per_replica_inputs,))

    for _ in range(5):
        iterator = iter(dist)
        for _ in range(5):
            output = step(next(iterator))
            assert len(output) == 4  # a tuple of two, twice
            assert local(strategy, output[0]) == [[[1.0]] * 8] * 2
    assert len(traced) == 1


# Pipelines.


@behaviour(
    GUIDE,
    shows="`list_files` → `shard` → `repeat` → `shuffle` → `interleave` → `map` of a parser",
    call="`train.distribute(strategy, dataset_fn)`",
)
def test_a_pipeline_of_files_reads_every_row(train: Input, tmp_path: Path) -> None:
    pattern = datasets.write_files(tmp_path, [5, 0, 17, 1, 30, 8, 2, 9])
    num_epochs, shuffle_buffer_size, num_readers, num_map_threads = 3, 20, 2, 4

    def parser_fn(record: Any) -> Any:
        return tf.io.decode_raw(record, tf.int64)[0]

    def dataset_fn(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        d = tf.data.Dataset.list_files(pattern, shuffle=False)
        d = d.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        d = d.repeat(num_epochs)
        d = d.shuffle(shuffle_buffer_size)
        d = d.interleave(tf.data.TFRecordDataset, cycle_length=num_readers, block_length=1)
        d = d.map(parser_fn, num_parallel_calls=num_map_threads)
        return d.batch(ctx.get_per_replica_batch_size(GLOBAL_BATCH))

    strategy = tf.distribute.MirroredStrategy(CPUS)
    dist = train.distribute(strategy, dataset_fn)
    found = Counter(row for rows in dist for one in local(strategy, rows) for row in one)
    assert found == dict.fromkeys(range(72), num_epochs)


@behaviour(
    GUIDE,
    shows="outputs sorted by an index from `enumerate()`",
    call="`train.distribute(strategy, dataset)`",
    note="The order is the same on any number of trainers and workers",
)
def test_outputs_are_ordered_by_an_index(train: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    dataset = tf.data.Dataset.range(24).enumerate().batch(6)

    def predict(index: Any, inputs: Any) -> Any:
        return index, 2 * inputs

    result: dict[int, int] = {}
    for index, inputs in train.distribute(strategy, dataset):
        output_index, outputs = strategy.run(predict, args=(index, inputs))
        for at, values in zip(local(strategy, output_index), local(strategy, outputs), strict=True):
            result.update(zip(at, values, strict=True))
    assert result == {row: 2 * row for row in range(24)}


# Raw tensors and generators.


@behaviour(
    GUIDE,
    shows="`experimental_distribute_values_from_function`: additional tensors for each replica",
    call="as in TensorFlow; `strategy.run(f, args=(batch, values))`",
)
def test_values_from_a_function_can_be_used_with_a_batch(in_order: Input) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    values = strategy.experimental_distribute_values_from_function(
        lambda ctx: tf.constant(10, tf.int64) * (1 + ctx.replica_id_in_sync_group)
    )
    batch = next(iter(in_order.distribute(strategy, tf.data.Dataset.range(4).batch(4))))
    sums = strategy.run(lambda rows, value: rows + value, args=(batch, values))
    assert local(strategy, sums) == [[10, 11], [22, 23]]


@behaviour(
    GUIDE,
    shows="`tf.data.Dataset.from_generator` with an endless Python generator",
    call='`entryPoint: {function: "module:dataset_fn"}`; `train.distribute(strategy)`',
    note="A generator cannot be sent to the workers. It runs there as an entry point",
)
def test_an_endless_generator_runs_in_the_workers(shared: Cluster) -> None:
    one = spec("element_types:generated_without_end", partitions=2, numSplits=2)
    (sidecar,) = shared.add_sidecars({"generated": one})
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with readers.connect(sidecar) as data:
        iterator = iter(data.distribute(strategy))
        seen = [
            tuple(one)
            for _ in range(4)
            for one in local(strategy, strategy.run(lambda x: x, args=(next(iterator),)))
        ]
    assert {len(one) for one in seen} == {4}
    assert len(set(seen)) == len(seen) == 8


@behaviour(
    GUIDE,
    shows="input without tf.data: a Python iterable",
    call='`entryPoint: {function: "module:iterable"}`; `train.distribute(strategy)`',
)
def test_an_iterable_of_numpy_arrays_reads_every_row(shared: Cluster) -> None:
    one = spec("element_types:iterated", partitions=2, numSplits=3, globalBatchSize=8)
    (sidecar,) = shared.add_sidecars({"iterated": one})
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with readers.connect(sidecar) as data:
        rows = [
            row
            for batch in data.distribute(strategy)
            for one in local(strategy, batch["id"])
            for row in one
        ]
    assert sorted(rows) == list(range(element_types.ROWS))


@behaviour(
    Reference.WRONG_USE,
    shows="`from_generator` in the trainer",
    call="`ConfigError`: use an entry point",
)
def test_a_generator_in_the_trainer_is_refused(train: Input) -> None:
    def input_gen() -> Any:
        while True:
            yield np.random.rand(4)

    signature = tf.TensorSpec([4], tf.float32)
    dataset = tf.data.Dataset.from_generator(input_gen, output_signature=signature)
    with pytest.raises(ConfigError, match=r"calls Python.*entry point"):
        train.distribute(tf.distribute.MirroredStrategy(CPUS), dataset)
