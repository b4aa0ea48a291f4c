"""Splits share the random choices before what selects their rows, and make others on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random import selecting, selections
from distributed_input.graph.random.seeds import reseed
from tests.unit.distributed_input.graph.graphcases import run

Data: TypeAlias = tf.data.Dataset
Make: TypeAlias = Callable[[int, int], Data]
SPLITS, ROWS = 4, 24  # two times two splits


def rows() -> Data:
    return Data.range(ROWS)


def part(n: int, i: int) -> Data:
    return Data.range(i * ROWS // n, (i + 1) * ROWS // n)


def draw(limit: int) -> tf.Tensor:
    return tf.random.uniform([], 0, limit, tf.int64)


def pairs(n: int, i: int, last: Callable[[Data], Data] = lambda data: data) -> Data:
    """Return numbers and the same numbers, shuffled alike in two branches."""
    first, second = (rows().shard(n, i).shuffle(9, seed=7) for _ in range(2))
    return Data.zip((first, last(second)))


def epochs_of(make: Make, epochs: int = 2) -> list[list[list[Any]]]:
    """Return the rows of all splits in each epoch, as workers read them."""
    datasets = [make(SPLITS, i) for i in range(SPLITS)]
    graphs = [serialize(dataset) for dataset in datasets]
    ends = {i: graphs[i] for i in (0, SPLITS - 1)}
    names = [selecting.file_names(graph) for graph in graphs]
    certain = selecting.shards_by_split(ends, SPLITS, names)
    own = [selections.find(graph, SPLITS, i, certain) for i, graph in enumerate(graphs)]
    return [
        [
            run(reseed(graph, 1, epoch, i, own[i]), datasets[i].element_spec)
            for i, graph in enumerate(graphs)
        ]
        for epoch in range(epochs)
    ]


def read_by_number(n: int, i: int, numbers: Data) -> Data:
    """Return elements whose number has this remainder, by a filter of all elements."""
    return numbers.enumerate().filter(lambda k, _: k % n == i).map(lambda _, x: x)


def names_of(numbers: Any) -> list[str]:
    return [f"/data/{number:02}.txt" for number in numbers]


def number_of(name: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.substr(name, 6, 2), tf.int64)


def sampled() -> Data:
    return Data.sample_from_datasets([Data.range(12), Data.range(12, ROWS)], [0.5, 0.5], seed=1)


def table(i: int) -> tf.lookup.StaticHashTable:
    numbers = tf.range(SPLITS, dtype=tf.int64)
    values = tf.lookup.KeyValueTensorInitializer(numbers, tf.cast(numbers == i, tf.int64))
    return tf.lookup.StaticHashTable(values, default_value=0)


def second(_: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return x


# A random choice before a selection: all rows come once, in all splits together.
AGREEING: dict[str, Make] = {
    "shard": lambda n, i: rows().shuffle(9).shard(n, i),
    "seeded": lambda n, i: rows().shuffle(9, seed=5).shard(n, i),
    "two shards": lambda n, i: rows().shard(2, i // 2).shuffle(9).shard(n // 2, i % 2),
    "two shards, other order": lambda n, i: rows().shard(2, i % 2).shuffle(9).shard(2, i // 2),
    "filter": lambda n, i: read_by_number(n, i, rows().shuffle(9)),
    "two filters": lambda n, i: read_by_number(
        2, i // 2, read_by_number(2, i % 2, rows().shuffle(9)).shuffle(9)
    ),
    "take and skip": lambda n, i: rows().shuffle(9).skip(i * ROWS // n).take(ROWS // n),
    "number in a map": lambda n, i: (
        rows()
        .shuffle(9)
        .enumerate()
        .map(lambda k, x: (k % n == i, x))
        .filter(lambda mine, _: mine)
        .map(lambda _, x: x)
    ),
    "number in a map before the shuffle": lambda n, i: (
        rows()
        .map(lambda x: (x, i))
        .shuffle(9)
        .enumerate()
        .filter(lambda k, row: k % n == tf.cast(row[1], tf.int64))
        .map(lambda _, row: row[0])
    ),
    "Python": lambda n, i: (
        rows()
        .shuffle(9)
        .enumerate()
        .filter(lambda k, _: tf.numpy_function(lambda k: k % n == i, [k], tf.bool))
        .map(lambda _, x: x)
    ),
    "random filter": lambda n, i: rows().filter(lambda _: draw(n) == i),
    "shard in a function": lambda n, i: (
        rows()
        .batch(6)
        .shuffle(2)
        .flat_map(lambda x: Data.from_tensor_slices(x).shuffle(6).shard(n, i))
    ),
    "shard by a captured tensor": lambda n, i: (
        lambda number: (
            rows()
            .batch(6)
            .flat_map(lambda x: read_by_number(n, number, Data.from_tensor_slices(x).shuffle(6)))
        )
    )(tf.constant(i, tf.int64)),
    "sampled": lambda n, i: Data.sample_from_datasets(
        [Data.range(12), Data.range(12, ROWS)], [0.5, 0.5]
    ).shard(n, i),
    "one row of each batch": lambda n, i: (
        rows().shuffle(9, seed=1).batch(n, drop_remainder=True).map(lambda batch: batch[i])
    ),
    "a slice of each batch": lambda n, i: (
        rows().shuffle(9).batch(2 * n).map(lambda batch: batch[2 * i : 2 * i + 2]).unbatch()
    ),
    "rows of a shuffle in a function": lambda n, i: (
        Data.range(n)
        .shard(n, i)
        .flat_map(lambda k: rows().shuffle(9, seed=5).skip(k * ROWS // n).take(ROWS // n))
    ),
    "a number that is zipped": lambda n, i: (
        Data.zip((sampled().enumerate(), Data.from_tensors(tf.constant(i, tf.int64)).repeat()))
        .filter(lambda row, j: row[0] % n == j)
        .map(lambda row, _: row[1])
    ),
    "a number that is an element": lambda n, i: (
        lambda mixed: Data.from_tensors(tf.constant(i, tf.int64)).flat_map(
            lambda k: mixed.shard(n, k)
        )
    )(sampled()),
    "a table": lambda n, i: (
        lambda mine: (
            rows().shuffle(9).enumerate().filter(lambda k, _: mine.lookup(k % n) == 1).map(second)
        )
    )(table(i)),
    "one split without the filter of others": lambda n, i: (
        rows().shuffle(9, seed=3).shard(n, i)
        if i == 2
        else read_by_number(n, i, rows().shuffle(9, seed=3))
    ),
    "a shard with numbers of another split": lambda n, i: rows().shuffle(9).shard(n, (i + 1) % n),
    "a part, and a filter": lambda n, i: read_by_number(
        n, i, Data.range(ROWS * n).shard(n, 1).map(lambda x: x // n).shuffle(9)
    ),
    "files in all splits": lambda n, i: read_by_number(
        n, i, Data.from_tensor_slices(names_of(range(ROWS))).shuffle(9).map(number_of)
    ),
    "files in two splits": lambda n, i: (
        Data.from_tensor_slices(names_of(range(i // 2, ROWS, 2)))
        .shuffle(9)
        .shard(2, i % 2)
        .map(number_of)
    ),
    "numbers of the split": lambda n, i: (
        Data.zip((sampled().enumerate(), Data.from_tensor_slices([i]).repeat()))
        .shuffle(9)
        .filter(lambda row, j: row[0] % n == tf.cast(j, tf.int64))
        .map(lambda row, _: row[1])
    ),
    "interleave of shuffled files": lambda n, i: (
        rows()
        .batch(6)
        .shuffle(4)
        .interleave(lambda x: Data.from_tensor_slices(x).shuffle(3), cycle_length=2)
        .shard(n, i)
    ),
}


@pytest.mark.parametrize("name", AGREEING)
def test_splits_agree_on_what_they_select_from(name: str) -> None:
    first, second = epochs_of(AGREEING[name])
    for found in (first, second):
        assert sorted(row for split in found for row in split) == list(range(ROWS))
    assert first != second


# A random choice after all selections, or in a branch without one: an order without the row's
# numbers, which is equal in all splits if they share their seeds.
INDEPENDENT: dict[str, Make] = {
    "shard": lambda n, i: rows().shard(n, i).shuffle(9).map(lambda x: x // n),
    "seeded": lambda n, i: rows().shard(n, i).shuffle(9, seed=5).map(lambda x: x // n),
    "not reshuffled": lambda n, i: (
        rows().shard(n, i).shuffle(9, reshuffle_each_iteration=False).map(lambda x: x // n)
    ),
    "a later filter": lambda n, i: (
        rows().shard(n, i).shuffle(9).filter(lambda x: x >= 0).map(lambda x: x // n)
    ),
    "a later take": lambda n, i: rows().shard(n, i).shuffle(9).take(5).map(lambda x: x // n),
    "a later interleave": lambda n, i: (
        rows()
        .shard(n, i)
        .map(lambda x: x // n)
        .shuffle(9)
        .interleave(Data.from_tensors, cycle_length=2)
    ),
    "in an interleave": lambda n, i: (
        rows()
        .shard(n, i)
        .map(lambda x: x // n)
        .interleave(lambda x: Data.range(x * 10, x * 10 + 5).shuffle(5), cycle_length=2)
    ),
    "in an interleave, after a shard": lambda n, i: (
        rows()
        .batch(ROWS)
        .interleave(
            lambda x: Data.from_tensor_slices(x).shard(n, i).shuffle(9).map(lambda y: y // n)
        )
    ),
    "files that Python slices": lambda n, i: (
        Data.from_tensor_slices(names_of(range(ROWS))[i::n])
        .shuffle(9)
        .map(lambda name: number_of(name) // n)
    ),
    "files and labels that Python slices": lambda n, i: (
        Data.from_tensor_slices({"a": [7] * (ROWS // n), "b": names_of(range(ROWS))[i::n]})
        .interleave(lambda row: Data.from_tensors(number_of(row["b"]) // n).repeat(2))
        .shuffle(9)
    ),
    "sampled": lambda n, i: Data.sample_from_datasets(
        [rows().shard(n, i).map(lambda x: x * 0), rows().shard(n, i).map(lambda x: x * 0 + 1)],
        [0.5, 0.5],
        seed=3,
    ),
    "chosen": lambda n, i: Data.choose_from_datasets(
        [rows().shard(n, i).map(lambda x: x * 0), rows().shard(n, i).map(lambda x: x * 0 + 1)],
        Data.random(seed=2).map(lambda x: x % 2).take(9),
    ),
    "resampled": lambda n, i: (
        Data.range(200)
        .shard(n, i)
        .map(lambda x: x // n)
        .rejection_resample(lambda x: tf.cast(x % 2, tf.int32), [0.9, 0.1], [0.5, 0.5])
        .map(lambda _, x: x)
    ),
    "random dataset": lambda n, i: Data.zip((rows().shard(n, i), Data.random(seed=1))).map(
        lambda _, y: y
    ),
    "map": lambda n, i: rows().shard(n, i).map(lambda _: draw(1000)),
    "map in two files": lambda n, i: Data.from_tensor_slices([1, 2]).interleave(
        lambda _: rows().shard(n, i).map(lambda _: draw(1000))
    ),
    "shared and own shuffles with one seed": lambda n, i: (
        rows().shuffle(9, seed=4).shard(n, i).shuffle(9, seed=4).map(lambda x: x // n)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INDEPENDENT)
def test_what_follows_the_selection_differs_between_splits(name: str) -> None:
    first, second = epochs_of(INDEPENDENT[name])
    assert len({tuple(split) for split in first}) == SPLITS
    assert (first == second) is (name == "not reshuffled")


@pytest.mark.parametrize(
    "last", [lambda data: data, lambda data: data.filter(lambda x: x >= 0)], ids=["", "filter"]
)
def test_branches_with_equal_seeds_stay_aligned(last: Callable[[Data], Data]) -> None:
    (found,) = epochs_of(lambda n, i: pairs(n, i, last), 1)
    assert all(a == b for split in found for a, b in split)
    assert len({tuple(a // SPLITS for a, _ in split) for split in found}) == SPLITS


def test_branches_stay_aligned_if_only_one_may_be_a_selection() -> None:
    def limited(n: int, i: int) -> Data:
        return pairs(n, i, lambda data: data.take(ROWS + i))

    assert all(a == b for split in epochs_of(limited, 1)[0] for a, b in split)


def test_a_part_of_a_fixed_shuffle_is_the_same_in_all_splits() -> None:
    whole = rows().shuffle(ROWS, seed=3, reshuffle_each_iteration=False)
    train, _ = epochs_of(lambda *_: whole.skip(8))
    _, test = epochs_of(lambda *_: whole.take(8))
    assert all(sorted(a + b) == list(range(ROWS)) for a in train for b in test)


def test_one_dataset_before_and_after_a_shard_is_shared() -> None:
    def twice(n: int, i: int) -> Data:
        shuffled = rows().shuffle(9, reshuffle_each_iteration=False)
        return Data.zip((shuffled.shard(1, 0), shuffled))

    assert all(a == b for split in epochs_of(twice, 1)[0] for a, b in split)


# It is not known that these ops select the rows of a split.
ALIKE: dict[str, Make] = {
    "own source": lambda n, i: part(n, i).shuffle(9).map(lambda x: x - i * ROWS // n),
    "filter": lambda n, i: rows().filter(lambda x: x % n == i).shuffle(9).map(lambda x: x // n),
}


@pytest.mark.parametrize("name", ALIKE)
def test_splits_shuffle_alike_with_a_warning_if_their_selection_is_not_known(name: str) -> None:
    (found,) = epochs_of(ALIKE[name], 1)
    assert len({tuple(split) for split in found}) == 1
    graphs = {i: serialize(ALIKE[name](SPLITS, i)) for i in (0, SPLITS - 1)}
    certain = selecting.shards_by_split(graphs, SPLITS)
    warning = selections.warning(graphs, certain)
    assert "dataset.shard(context.num_input_pipelines" in warning
    assert not selections.warning(graphs, (True,))


def test_shuffles_whose_seeds_depend_on_the_split_need_no_warning() -> None:
    def other(i: int, *, also: bool) -> Data:
        return Data.zip((rows().shuffle(9, seed=i), rows().shuffle(9, seed=i if also else 7)))

    for also in (True, False):
        graphs = {i: serialize(other(i, also=also)) for i in (0, SPLITS - 1)}
        assert bool(selections.warning(graphs, ())) is not also


def test_files_do_not_select_if_it_is_not_known_what_a_shard_selects() -> None:
    files = names_of(range(ROWS))
    graphs = [
        serialize(Data.from_tensor_slices(files[i::SPLITS]).shard(SPLITS, 0)) for i in range(SPLITS)
    ]
    names = [selecting.file_names(graph) for graph in graphs]
    ends = {i: graphs[i] for i in (0, SPLITS - 1)}
    assert selecting.shards_by_split(ends, SPLITS, names) == ()


def test_splits_with_other_numbers_of_sources_have_no_known_files() -> None:
    one, two = (Data.from_tensor_slices([name]) for name in "ab")
    graphs = {0: serialize(one), 1: serialize(Data.zip((two, rows())))}
    names = [selecting.file_names(graph) for graph in graphs.values()]
    assert selecting.shards_by_split(graphs, 2, names) == ()


def test_the_numbers_of_one_split_may_be_a_constant() -> None:
    graphs = {i: serialize(rows().shard(SPLITS, 0)) for i in (0, SPLITS - 1)}
    assert selecting.shards_by_split({0: graphs[0]}, SPLITS) == ()
    assert not any(selecting.shards_by_split(graphs, SPLITS))
