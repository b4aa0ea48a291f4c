"""The examples of `tf.distribute.DistributedDataset` and `DistributedIterator`.

Two logical CPUs replace the two GPUs of the examples.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input import Input
from testing.compat.behaviour import Reference, behaviour
from testing.integration.devices import CPUS

DATASET, ITERATOR = Reference.DATASET, Reference.ITERATOR
GPUS = "GPUs: replicas here are two logical CPUs"
# TensorFlow warns in the same way.
pytestmark = pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding")


@pytest.fixture
def strategy() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(CPUS)


def local(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Return the values of each replica as lists."""
    return [one.numpy().tolist() for one in strategy.experimental_local_results(value)]


def pair(label: float | int = 1.0, count: int = 100, batch: int = 16) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(([1.0], [label])).repeat(count).batch(batch)


@behaviour(
    DATASET,
    shows="the `for` loop: `strategy.run(train_step, args=(x,))` runs each replica on its half",
    call="`for x in train.distribute(strategy, dataset)`",
    needs=GPUS,
)
def test_a_loop_gives_each_replica_its_half(train: Input, strategy: Any) -> None:
    @tf.function
    def train_step(inputs: Any) -> Any:
        features, labels = inputs
        return labels - 0.3 * features

    losses = [
        strategy.run(train_step, args=(x,))
        for x in train.distribute(strategy, pair(count=4, batch=4))
    ]
    (loss,) = losses
    assert isinstance(loss, tf.distribute.DistributedValues)
    np.testing.assert_allclose(local(strategy, loss), [[[0.7]] * 2] * 2, rtol=1e-6)


@behaviour(
    DATASET,
    shows="an explicit iterator for every epoch; the replicas' losses are summed with"
    " `strategy.reduce` in a `tf.function`",
    call="`iter(train.distribute(strategy, dataset))`",
)
def test_every_epoch_has_its_own_iterator(train: Input, strategy: Any) -> None:
    dist = train.distribute(strategy, pair(count=50, batch=4))

    @tf.function
    def distributed_train_step(dataset_inputs: Any) -> Any:
        losses = strategy.run(lambda inputs: tf.constant(0.1), args=(dataset_inputs,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for _ in range(2):
        iterator = iter(dist)
        total = sum(float(distributed_train_step(next(iterator))) for _ in range(3))
        assert total / 3 == pytest.approx(0.2)


@behaviour(
    DATASET,
    shows="a step with `input_signature=[dist_dataset.element_spec]`",
    call="`train.distribute(strategy, dataset).element_spec`",
)
def test_a_step_accepts_the_element_spec_as_signature(train: Input, strategy: Any) -> None:
    dataset = tf.data.Dataset.from_tensors([2.0]).repeat(100).batch(4)
    dist = train.distribute(strategy, dataset)

    @tf.function(input_signature=[dist.element_spec])
    def train_step(per_replica_inputs: Any) -> Any:
        return strategy.run(tf.square, args=(per_replica_inputs,))

    assert local(strategy, train_step(next(iter(dist)))) == [[[4.0], [4.0]]] * 2


@behaviour(
    DATASET,
    shows="`element_spec`: a `PerReplicaSpec` of each component, with unknown batch size",
    call="`train.distribute(strategy, dataset).element_spec`",
)
@behaviour(
    ITERATOR,
    shows="`element_spec`, the same as the dataset's",
    call="`iter(train.distribute(strategy, dataset)).element_spec`",
)
def test_element_spec_has_a_spec_per_replica(train: Input, strategy: Any) -> None:
    dist = train.distribute(strategy, pair(label=2))
    for dataset_or_iterator in (dist, iter(dist)):
        features, labels = dataset_or_iterator.element_spec
        assert type(features).__name__ == type(labels).__name__ == "PerReplicaSpec"
        assert features._value_specs == (tf.TensorSpec([None, 1], tf.float32),) * 2
        assert labels._value_specs == (tf.TensorSpec([None, 1], tf.int32),) * 2


@behaviour(
    DATASET,
    shows="`__iter__` of an endless dataset: `PerReplica: {0: [1 2], 1: [3 4]}`",
    call="`iter(train.distribute(strategy, dataset))`",
)
def test_an_endless_dataset_repeats_its_rows(in_order: Input, strategy: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices([1, 2, 3, 4]).repeat().batch(4)
    iterator = iter(in_order.distribute(strategy, dataset))
    for _ in range(3):
        assert local(strategy, next(iterator)) == [[1, 2], [3, 4]]


@behaviour(
    ITERATOR,
    shows="`get_next()`: five steps of `strategy.run`, then `experimental_local_results` of the"
    " sixth: `([10], [11])`",
    call="`iter(train.distribute(strategy, dataset)).get_next()`",
    needs=GPUS,
)
def test_get_next_returns_the_next_batch(in_order: Input, strategy: Any) -> None:
    iterator = iter(in_order.distribute(strategy, tf.data.Dataset.range(100).batch(2)))
    one_step = tf.function(lambda inputs: inputs)
    for _ in range(5):
        strategy.run(one_step, args=(iterator.get_next(),))
    assert local(strategy, iterator.get_next()) == [[10], [11]]


@behaviour(
    ITERATOR,
    shows="`get_next()` of a strategy of one replica: a `tf.Tensor`, not `DistributedValues`",
    call="`iter(train.distribute(strategy, dataset)).get_next()`",
)
def test_get_next_of_one_replica_is_a_tensor(in_order: Input) -> None:
    one = tf.distribute.OneDeviceStrategy(CPUS[0])
    rows = iter(in_order.distribute(one, tf.data.Dataset.range(4).batch(2))).get_next()
    assert isinstance(rows, tf.Tensor)
    assert rows.numpy().tolist() == [0, 1]


@behaviour(
    ITERATOR,
    shows="`get_next()` raises `tf.errors.OutOfRangeError` at the end, also repeatedly",
    call="`iter(train.distribute(strategy, dataset)).get_next()`",
)
def test_get_next_raises_out_of_range_at_the_end(in_order: Input, strategy: Any) -> None:
    iterator = iter(in_order.distribute(strategy, tf.data.Dataset.range(4).batch(2)))
    for _ in range(2):
        iterator.get_next()
    for _ in range(2):
        with pytest.raises(tf.errors.OutOfRangeError):
            iterator.get_next()


@behaviour(
    ITERATOR,
    shows="`get_next_as_optional()` in a `tf.function` of several steps; no value at the end",
    call="`iter(train.distribute(strategy, dataset)).get_next_as_optional()`",
)
def test_get_next_as_optional_has_no_value_at_the_end(in_order: Input, strategy: Any) -> None:
    iterator = iter(in_order.distribute(strategy, tf.data.Dataset.range(10).batch(2)))

    @tf.function
    def train_fn(iterator: Any) -> tuple[Any, Any]:
        total, steps = tf.constant(0, tf.int64), 0
        for _ in tf.range(2):
            optional = iterator.get_next_as_optional()
            if not optional.has_value():
                break
            sums = strategy.run(tf.reduce_sum, args=(optional.get_value(),))
            total += strategy.reduce("SUM", sums, axis=None)
            steps += 1
        return total, steps

    totals = [tuple(map(int, train_fn(iterator))) for _ in range(4)]
    assert totals == [(0 + 1 + 2 + 3, 2), (4 + 5 + 6 + 7, 2), (8 + 9, 1), (0, 0)]


@behaviour(
    ITERATOR,
    shows="Python's iterator protocol: `iter` of it, `next`, `for`; `StopIteration` at the end",
    call="`iter(train.distribute(strategy, dataset))`",
)
def test_an_iterator_has_pythons_protocol(in_order: Input, strategy: Any) -> None:
    iterator = iter(in_order.distribute(strategy, tf.data.Dataset.range(6).batch(2)))
    assert iter(iterator) is iterator
    assert local(strategy, next(iterator)) == [[0], [1]]
    rest = [local(strategy, rows) for rows in iterator]
    assert list(itertools.chain(*itertools.chain(*rest))) == [2, 3, 4, 5]
    with pytest.raises(StopIteration):
        next(iterator)
