"""The strategy's own distributed dataset: every replica gets its part of every step."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from testing.compat.behaviour import Reference, behaviour
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS
from testing.integration.readers import ids

# 120 rows in steps of 16. The last step has 8 rows, all for the first replica.
SIZES = [3, 0, 50, 7, 1, 20, 0, 39]
BATCH = 16
STRATEGIES = {
    "mirrored": lambda: tf.distribute.MirroredStrategy(CPUS),
    "one device": lambda: tf.distribute.OneDeviceStrategy(CPUS[1]),
    "central storage": lambda: tf.distribute.experimental.CentralStorageStrategy(CPUS, CPUS[0]),
    "default": tf.distribute.get_strategy,
}
Strategy = tf.distribute.Strategy
Steps = list[list[list[int]]]
"""Row ids as [step][replica]."""


@pytest.fixture(scope="module")
def sidecar(shared: Cluster) -> Sidecar:
    one = spec("rows:uneven", {"sizes": SIZES}, numSplits=8, partitions=4, globalBatchSize=BATCH)
    padded = {**one, "batching": {"globalBatchSize": BATCH, "remainder": "pad"}}
    traced = spec(partitions=4, numSplits=8)
    return shared.add_sidecars({"train": one, "padded": padded, "traced": traced})[0]


@pytest.fixture(scope="module")
def steps(sidecar: Sidecar) -> list[list[int]]:
    """Return the steps of the first epoch, as numpy reads them."""
    (epochs,) = readers.read([sidecar], "train")
    return [ids([batch]) for batch in epochs[0]]


def split_steps(steps: list[list[int]], replicas: int) -> Steps:
    """Return the expected rows of each replica in each step."""
    size = BATCH // replicas
    return [[step[r * size : (r + 1) * size] for r in range(replicas)] for step in steps]


def local(strategy: Strategy, batch: Any) -> list[list[int]]:
    """Return the row ids of each replica."""
    results = strategy.experimental_local_results(batch["id"])
    return [[int(row) for row in one.numpy()] for one in results]


def by_for_loop(strategy: Strategy, dist: Any) -> Steps:
    return [local(strategy, batch) for batch in dist]


def by_next_in_a_function(strategy: Strategy, dist: Any) -> Steps:
    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(lambda batch: batch, args=(next(iterator),))

    iterator, out = iter(dist), []
    while True:
        try:
            out.append(local(strategy, step(iterator)))
        except tf.errors.OutOfRangeError:
            return out


def by_optional(strategy: Strategy, dist: Any) -> Steps:
    iterator, out = iter(dist), []
    while bool((optional := iterator.get_next_as_optional()).has_value()):
        out.append(local(strategy, optional.get_value()))
    return out


@behaviour(
    Reference.STRATEGIES,
    shows="default, `OneDeviceStrategy`, `MirroredStrategy`, `CentralStorageStrategy`: each replica"
    " gets its part of every step with `for`, `next` and `get_next_as_optional`; in the last step,"
    " the last replicas can be empty",
    call="`train.distribute(strategy)`",
    needs="GPUs: replicas here are two logical CPUs",
)
@pytest.mark.parametrize("loop", [by_for_loop, by_next_in_a_function, by_optional])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_replica_gets_its_part_of_every_step(
    cluster: Cluster, sidecar: Sidecar, steps: list[list[int]], name: str, loop: Any
) -> None:
    strategy = STRATEGIES[name]()
    if name == "default" and loop is by_optional:
        loop = by_for_loop  # tf.data has its own get_next_as_optional
    with readers.connect(sidecar, "train") as data:
        found = loop(strategy, data.distribute(strategy))
    assert found == split_steps(steps, strategy.num_replicas_in_sync)
    if strategy.num_replicas_in_sync == 2:
        assert [len(one) for one in found[-1]] == [8, 0]


@behaviour(
    Reference.DATASET,
    shows="a `tf.distribute.DistributedDataset`, and `iter()` returns a"
    " `tf.distribute.DistributedIterator`; the default strategy returns a `tf.data.Dataset`",
    call="`train.distribute(strategy)`",
)
def test_distribute_returns_the_strategys_own_type(cluster: Cluster, sidecar: Sidecar) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with readers.connect(sidecar, "train") as data:
        dist = data.distribute(strategy)
        assert isinstance(dist, tf.distribute.DistributedDataset)
        assert isinstance(iter(dist), tf.distribute.DistributedIterator)
    rows = tf.TensorSpec([None], tf.int64)
    assert dist.element_spec["id"]._value_specs == (rows, rows)
    with readers.connect(sidecar, "train") as data:
        default = data.distribute(tf.distribute.get_strategy())
        assert isinstance(default, tf.data.Dataset)


@behaviour(
    Reference.DATASET,
    shows="the `for` loop inside a `tf.function`",
    call="`for x in train.distribute(strategy)`",
    note="As in TensorFlow, without `break` and not in several processes",
)
@pytest.mark.filterwarnings(
    "ignore:To make it possible to preserve tf.data options"
)  # as in TensorFlow
def test_a_loop_in_a_function_reads_every_epoch(
    cluster: Cluster, sidecar: Sidecar, steps: list[list[int]]
) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)

    @tf.function
    def epoch(dist: Any) -> Any:
        total, count = tf.constant(0, tf.int64), tf.constant(0)
        for batch in dist:
            sums = strategy.run(lambda batch: tf.reduce_sum(batch["id"]), args=(batch,))
            total += strategy.reduce("SUM", sums, axis=None)
            count += 1
        return total, count

    with readers.connect(sidecar, "train") as data:
        dist = data.distribute(strategy)
        totals = [tuple(map(int, epoch(dist))) for _ in range(2)]
    assert totals == [(sum(range(sum(SIZES))), len(steps))] * 2


@behaviour(
    Reference.DATASET,
    shows="many steps in one `tf.function`: `strategy.run` in a `tf.range`",
    call="`next(iter(train.distribute(strategy)))`",
)
def test_one_call_takes_many_steps(
    cluster: Cluster, sidecar: Sidecar, steps: list[list[int]]
) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)

    @tf.function
    def run(iterator: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for _ in tf.range(3):
            sums = strategy.run(lambda batch: tf.reduce_sum(batch["id"]), args=(next(iterator),))
            total += strategy.reduce("SUM", sums, axis=None)
        return total

    with readers.connect(sidecar, "train") as data:
        iterator = iter(data.distribute(strategy))
        totals = [int(run(iterator)) for _ in range(2)]
    assert totals == [sum(sum(step) for step in some) for some in (steps[:3], steps[3:6])]


@behaviour(
    Reference.TPU,
    shows="static shapes for every replica",
    call="`batching: {remainder: Pad}` or `Drop`",
    needs="a TPU to compile for",
)
def test_padding_gives_every_replica_the_same_shape(cluster: Cluster, sidecar: Sidecar) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with readers.connect(sidecar, "padded") as data:
        dist = data.distribute(strategy)
        rows = tf.TensorSpec([BATCH // 2], tf.int64)
        assert dist.element_spec["id"]._value_specs == (rows, rows)
        found = by_for_loop(strategy, dist)
    assert {len(one) for step in found for one in step} == {BATCH // 2}
    assert found[-1][1] == [0] * 8


@behaviour(
    Reference.GUIDE,
    shows="`dataset_fn` with `get_per_replica_batch_size`, `num_input_pipelines` and"
    " `input_pipeline_id`",
    call="`train.distribute(strategy, dataset_fn)`",
    note="It is called once for every split, with `num_replicas_in_sync=1`: its rows do not depend"
    " on the number of trainers",
)
def test_a_traced_function_gets_the_global_batch(cluster: Cluster, sidecar: Sidecar) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    sizes = []

    def dataset_fn(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        assert ctx.num_replicas_in_sync == 1
        sizes.append(ctx.get_per_replica_batch_size(BATCH))
        rows = tf.data.Dataset.range(100).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        return rows.map(lambda row: {"id": row}).batch(sizes[-1])

    with readers.connect(sidecar, "traced") as data:
        found = by_for_loop(strategy, data.distribute(strategy, dataset_fn))
    assert set(sizes) == {BATCH // 4}  # the part of a partition in a step
    assert [[len(one) for one in step] for step in found] == [[8, 8]] * 6 + [[4, 0]]
    assert sorted(row for step in found for one in step for row in one) == list(range(100))


@behaviour(
    Reference.WRONG_USE,
    shows="one connection read with `dataset()` during `distribute()`",
    call="`ConfigError`: connect again",
)
def test_plain_and_distributed_datasets_cannot_share_an_epoch(
    cluster: Cluster, sidecar: Sidecar
) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with readers.connect(sidecar, "train") as data:
        next(iter(data.distribute(strategy)))
        with pytest.raises(Exception, match="is being iterated for 2 replicas"):
            data.dataset()
