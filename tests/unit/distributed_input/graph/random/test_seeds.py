"""Random values are equal for equal (seed, epoch), and otherwise independent."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.seeds import reseed
from tests.unit.distributed_input.graph.graphcases import elements, epoch_of, random_number, run

Data: TypeAlias = tf.data.Dataset


@tf.function
def helper(_: tf.Tensor) -> tf.Tensor:
    return random_number()


def generator_of(seed: int) -> Data:
    generator = tf.random.Generator.from_seed(seed)
    return Data.range(20).map(lambda _: generator.uniform([], 0, 1 << 20, tf.int32))


def interleaved_generator(seed: int) -> Data:
    generator = tf.random.Generator.from_seed(seed)

    @tf.function
    def draw(_: tf.Tensor) -> tf.Tensor:
        return generator.uniform([], 0, 1 << 20, tf.int32)

    return Data.range(3).interleave(lambda _: Data.range(5).map(draw))


RANDOM = {
    "shuffle": lambda: Data.range(40).shuffle(40),
    "seeded shuffle": lambda: Data.range(40).shuffle(40, seed=3),
    "shuffle and repeat": lambda: Data.range(20).shuffle(20).repeat(3),
    "random dataset": lambda: Data.random().take(20),
    "rerandomized": lambda: Data.random(rerandomize_each_iteration=True).take(20),
    "sampled": lambda: Data.sample_from_datasets([Data.range(30), Data.range(100, 130)]),
    "map": lambda: Data.range(20).map(lambda _: random_number()),
    "map in a function": lambda: Data.range(20).map(lambda x: (helper(x), helper(x))),
    "nested shuffle": lambda: Data.range(3).flat_map(lambda _: Data.range(20).shuffle(20)),
    "seed known when it runs": lambda: Data.range(3).flat_map(
        lambda i: Data.range(20).shuffle(20, seed=i)
    ),
    "generator": lambda: generator_of(7),
    "generator in an interleave": lambda: interleaved_generator(7),
    "cache": lambda: Data.range(20).map(lambda _: random_number()).cache().repeat(2),
    "batch of random crops": lambda: Data.range(8).map(
        lambda _: tf.image.random_crop(tf.reshape(tf.range(400), [20, 20, 1]), [2, 2, 1])
    ),
}


@pytest.mark.parametrize("name", RANDOM)
def test_an_epoch_is_the_same_in_every_instance_and_differs_from_other_epochs(name: str) -> None:
    dataset = RANDOM[name]()
    first = epoch_of(dataset, 1, 0)
    if "generator" not in name:  # whose state is the trainer's own, and part of the dataset
        elements(dataset.take(3))
    assert epoch_of(dataset, 1, 0) == first
    assert epoch_of(dataset, 1, 1) != first
    assert epoch_of(dataset, 2, 0) != first
    assert epoch_of(RANDOM[name](), 1, 0) == first


@pytest.mark.parametrize("name", RANDOM)
def test_instances_that_run_together_are_independent(name: str) -> None:
    dataset = RANDOM[name]()
    graph_def = reseed(serialize(dataset), 1, 0, 0)
    alone = run(graph_def, dataset.element_spec)
    instances = [serialization.instantiate(graph_def, dataset.element_spec) for _ in range(3)]
    both = list(Data.zip(tuple(instances)).as_numpy_iterator())
    for i in range(3):
        assert [np.asarray(row[i]).tolist() for row in both] == [
            np.asarray(row).tolist() for row in alone
        ]


def test_repetitions_are_reshuffled() -> None:
    order = epoch_of(Data.range(30).shuffle(30).repeat(3))
    assert len({tuple(order[i : i + 30]) for i in (0, 30, 60)}) == 3


def test_a_shuffle_without_reshuffling_keeps_its_order() -> None:
    dataset = Data.range(30).shuffle(30, reshuffle_each_iteration=False).repeat(2)
    order = epoch_of(dataset, epoch=0)
    assert order[:30] == order[30:]
    assert epoch_of(dataset, epoch=1) == order
    assert epoch_of(dataset, seed=2) != order


def seeded(_: tf.Tensor) -> tf.Tensor:
    return tf.random.uniform([], 0, 1 << 20, tf.int32, seed=5)


def both(shuffled: Data) -> Data:
    return Data.zip((shuffled.map(lambda x: x), shuffled.map(lambda x: x)))


ALIGNED: dict[str, Callable[[], Data]] = {
    "equal seeds": lambda: Data.zip(tuple(Data.range(30).shuffle(30, seed=5) for _ in range(2))),
    "equal seeds, one order": lambda: Data.zip(
        tuple(Data.range(30).shuffle(30, 5, reshuffle_each_iteration=False) for _ in range(2))
    ),
    "one shuffle": lambda: both(Data.range(30).shuffle(30, reshuffle_each_iteration=False)),
    "equal seeds in maps": lambda: Data.zip(tuple(Data.range(30).map(seeded) for _ in range(2))),
}


@pytest.mark.parametrize("name", ALIGNED)
def test_ops_with_equal_seeds_stay_aligned(name: str) -> None:
    rows = epoch_of(ALIGNED[name]())
    assert all(a == b for a, b in rows)
    assert [a for a, _ in rows] != list(range(30))


def test_two_unseeded_shuffles_are_independent() -> None:
    rows = epoch_of(Data.zip((Data.range(30).shuffle(30), Data.range(30).shuffle(30))))
    assert any(a != b for a, b in rows)


def test_unseeded_random_ops_are_independent_of_each_other() -> None:
    def two(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return random_number(), random_number(), helper(x), helper(x)

    augment = Data.range(30).map(two)
    rows = epoch_of(Data.zip((augment, augment, Data.range(30).map(two))))
    streams = [tuple(row[i][j] for row in rows) for i in range(3) for j in range(4)]
    assert len(set(streams)) == 12


def test_stateless_random_ops_are_not_changed() -> None:
    dataset = Data.range(20).map(
        lambda x: tf.random.stateless_uniform([], tf.stack([x, 1]), 0, 1 << 20, tf.int32)
    )
    assert epoch_of(dataset, 1, 0) == epoch_of(dataset, 2, 5) == elements(dataset)


def test_splits_have_independent_augmentations_and_the_same_order_before_a_shard() -> None:
    shuffled = Data.range(30).shuffle(30).shard(1, 0)
    dataset = shuffled.map(lambda x: (x, random_number()))
    a, b = (epoch_of(dataset, split=split) for split in (0, 1))
    assert [x for x, _ in a] == [x for x, _ in b]
    assert [y for _, y in a] != [y for _, y in b]
    assert a == epoch_of(dataset, split=0)


@pytest.mark.parametrize("after", ["shard", "filter"])
def test_random_ops_that_may_define_the_order_are_equal_in_all_splits(after: str) -> None:
    dataset = Data.range(30).map(lambda x: (x, random_number()))
    if after == "shard":
        dataset = dataset.shard(2, 0)
    else:
        dataset = dataset.filter(lambda _, y: y + random_number() > 1 << 20).map(lambda x, _: x)
        dataset = dataset.shard(1, 0)
    assert epoch_of(dataset, split=0) == epoch_of(dataset, split=1)


def test_other_variables_keep_their_values() -> None:
    table = tf.Variable([3, 4], dtype=tf.int64)
    generator = tf.random.Generator.from_seed(5)

    def draw(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tf.random.stateless_uniform([], [1, 2]), generator.uniform([]), table + x

    assert [row[2] for row in epoch_of(Data.range(2).map(draw))] == [[3, 4], [4, 5]]


def test_every_instance_has_its_own_mutable_variables() -> None:
    count = tf.Variable(0, dtype=tf.int64)
    dataset = Data.range(5).map(count.assign_add)
    assert epoch_of(dataset) == [0, 1, 3, 6, 10] == epoch_of(dataset)
    assert int(count) == 0


@pytest.mark.slow
def test_opening_many_splits_leaks_nothing() -> None:
    dataset = RANDOM["map in a function"]().shuffle(4)
    defined = serialize(dataset)

    def open_many(count: int) -> int:
        for epoch in range(count):
            graph_def = reseed(defined, 1, epoch, 0)
            next(iter(serialization.instantiate(graph_def, dataset.element_spec)))
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    open_many(50)
    before = open_many(50)
    assert open_many(200) - before < 10_000  # KiB
