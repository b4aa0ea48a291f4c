"""The behaviour that `tf.distribute.TPUStrategy` documents for every strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input import Input
from testing.compat.behaviour import Reference, behaviour
from testing.integration.devices import CPUS

TPU = Reference.TPU
# TensorFlow warns in the same way.
pytestmark = pytest.mark.filterwarnings(
    "ignore:In AUTO-mode", "ignore:DATA sharding", "ignore:the dataset shards records"
)
ReduceOp = tf.distribute.ReduceOp


@pytest.fixture
def strategy() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(CPUS)


def local(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Return the values of each replica as lists."""
    return [one.numpy().tolist() for one in strategy.experimental_local_results(value)]


@behaviour(
    TPU,
    shows="`dataset_fn` with an endless dataset, sharded by the input context after its batch",
    call="`train.distribute(strategy, dataset_fn)`",
)
def test_a_dataset_fn_may_be_endless(train: Input, strategy: Any) -> None:
    def dataset_fn(input_context: tf.distribute.InputContext) -> tf.data.Dataset:
        batch_size = input_context.get_per_replica_batch_size(8)
        d = tf.data.Dataset.from_tensors([[1.0]]).repeat().batch(batch_size)
        return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    iterator = iter(train.distribute(strategy, dataset_fn))
    for _ in range(5):
        assert np.shape(local(strategy, next(iterator))) == (2, 4, 1, 1)


@behaviour(
    TPU,
    shows="replicas of an endless dataset that differ only in their random seed",
    call="`train.distribute(strategy, dataset_fn)`, which seeds by `input_pipeline_id`",
)
def test_shards_may_differ_only_in_their_seed(train: Input, strategy: Any) -> None:
    def dataset_fn(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        d = tf.data.Dataset.range(1000).shuffle(1000, seed=ctx.input_pipeline_id).repeat()
        return d.batch(ctx.get_per_replica_batch_size(8))

    iterator = iter(train.distribute(strategy, dataset_fn))
    steps = [local(strategy, next(iterator)) for _ in range(10)]
    # With the same order in all shards, each number would come eight times in a row.
    assert len({row for step in steps for one in step for row in one}) > 40


@behaviour(
    TPU,
    shows="`experimental_local_results`: the value of every local replica; `(value,)` for one",
    call="as in TensorFlow",
)
def test_local_results_has_a_value_per_replica(in_order: Input, strategy: Any) -> None:
    batch = next(iter(in_order.distribute(strategy, tf.data.Dataset.range(8).batch(4))))
    results = strategy.experimental_local_results(batch)
    assert isinstance(results, tuple)
    assert [one.numpy().tolist() for one in results] == [[0, 1], [2, 3]]


@behaviour(
    TPU,
    shows="`experimental_local_results`: the value of every local replica; `(value,)` for one",
    call="as in TensorFlow",
)
def test_local_results_of_one_replica_is_a_tuple(in_order: Input) -> None:
    one = tf.distribute.OneDeviceStrategy(CPUS[0])
    batch = next(iter(in_order.distribute(one, tf.data.Dataset.range(8).batch(4))))
    assert local(one, batch) == [[0, 1, 2, 3]]
    assert one.experimental_local_results(batch) == (batch,)


@behaviour(
    TPU,
    shows="`experimental_make_numpy_dataset`: a nest of arrays as a dataset",
    call="`train.distribute(strategy, tf.data.Dataset.from_tensor_slices(arrays).batch(...))`",
    note="TensorFlow 2 has removed this method. The arrays are sent to the workers once",
)
def test_arrays_in_memory_are_a_dataset(train: Input, strategy: Any) -> None:
    arrays = {"x": np.arange(20, dtype=np.float32), "y": (np.arange(20) ** 2, np.ones([20, 3]))}
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(8)
    seen: dict[float, int] = {}
    for batch in train.distribute(strategy, dataset):
        for x, (y, z) in zip(
            strategy.experimental_local_results(batch["x"]),
            zip(*map(strategy.experimental_local_results, batch["y"]), strict=True),
            strict=True,
        ):
            assert z.shape[1:] == (3,)
            seen.update(zip(x.numpy().tolist(), y.numpy().tolist(), strict=True))
    assert seen == {float(row): row**2 for row in range(20)}


@behaviour(
    TPU,
    shows="`experimental_make_numpy_dataset`: a list of arrays is stacked",
    call="`train.distribute(strategy, tf.data.Dataset.from_tensor_slices(arrays).batch(...))`",
)
def test_a_list_of_arrays_is_stacked(in_order: Input, strategy: Any) -> None:
    arrays = [np.full(3, row, np.float32) for row in range(4)]
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(4)
    (step,) = (local(strategy, rows) for rows in in_order.distribute(strategy, dataset))
    assert step == [[[0.0] * 3, [1.0] * 3], [[2.0] * 3, [3.0] * 3]]


@behaviour(
    TPU,
    shows="a batch is divided among a host's replicas even without sharding",
    call="the dataset's options; `train.distribute(strategy, dataset)`",
)
def test_a_batch_is_divided_without_sharding(in_order: Input, strategy: Any) -> None:
    options = tf.data.Options()
    off = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = off
    dataset = tf.data.Dataset.range(8).batch(4).with_options(options)
    steps = [local(strategy, rows) for rows in in_order.distribute(strategy, dataset)]
    assert steps == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


@behaviour(
    TPU,
    shows="`reduce` with `axis=None`: over replicas, `[0+4, 1+5, 2+6, 3+7]`; with `axis=0`: also"
    " over the batch",
    call="as in TensorFlow",
)
def test_reduce_sums_over_replicas_and_batch(in_order: Input, strategy: Any) -> None:
    batch = next(iter(in_order.distribute(strategy, tf.data.Dataset.range(8).batch(8))))
    assert strategy.reduce(ReduceOp.SUM, batch, axis=None).numpy().tolist() == [4, 6, 8, 10]
    assert int(strategy.reduce(ReduceOp.SUM, batch, axis=0)) == 28


@behaviour(
    TPU,
    shows="`reduce` with `MEAN` and `axis=0` of a partial last batch of 6: the denominator is 6",
    call="as in TensorFlow",
)
@pytest.mark.parametrize("rows", [6, 3])
def test_the_mean_of_a_partial_batch_counts_its_rows(
    in_order: Input, strategy: Any, rows: int
) -> None:
    dataset = tf.data.Dataset.range(8 + rows).map(lambda row: tf.cast(row, tf.float32)).batch(8)
    *_, last = iter(in_order.distribute(strategy, dataset))
    in_function = tf.function(lambda value: strategy.reduce(ReduceOp.MEAN, value, axis=0))
    expected = np.mean(np.arange(8, 8 + rows))
    assert [len(one) for one in local(strategy, last)] == [min(4, rows), max(0, rows - 4)]
    for reduced in (strategy.reduce(ReduceOp.MEAN, last, axis=0), in_function(last)):
        assert float(reduced) == pytest.approx(expected)


@behaviour(
    TPU,
    shows="`strategy.scope()`: input created inside is the same as input created outside",
    call="`with strategy.scope(): train.distribute(strategy, dataset)`",
)
def test_input_created_in_the_scope_is_the_same(in_order: Input, strategy: Any) -> None:
    with strategy.scope():
        assert tf.distribute.in_cross_replica_context()
        dist = in_order.distribute(strategy, tf.data.Dataset.range(8).batch(4))
        steps = [local(strategy, rows) for rows in dist]
    assert steps == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
