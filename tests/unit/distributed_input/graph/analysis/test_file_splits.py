"""Each transformation of tf.data is split by files, dealt, or refused, and never loses a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.graph import sharding
from tests.unit.distributed_input.graph.graphcases import elements, run, with_policy

Data: TypeAlias = tf.data.Dataset
NUMBER = tf.strings.to_number
LINES = tf.data.TextLineDataset
FILE, DEALT = "FILE", "DATA"
counter = tf.Variable(0)


class Files(NamedTuple):
    """Files with the numbers from 0: the same numbers in files of other sizes."""

    short: list[str]
    long: list[str]

    @property
    def rows(self) -> Data:
        return LINES(self.short)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("lines")

    def write(count: int, size: int) -> list[str]:
        names = [folder / f"{size}-{i}" for i in range(count)]
        for i, name in enumerate(names):
            name.write_text("".join(f"{i * size + j}\n" for j in range(size)))
        return list(map(str, names))

    return Files(write(6, 4), write(3, 8))


Make: TypeAlias = Callable[[Files], Data]

# docs/pipelines.md has this table: the ops behind a reader, and how the dataset is split.
BY_FILE: dict[str, Make] = {
    "map": lambda f: f.rows.map(NUMBER, num_parallel_calls=2),
    "random map": lambda f: f.rows.map(lambda x: (x, tf.random.uniform([])))
    .map(lambda x, _: x),
    "filter": lambda f: f.rows.filter(lambda x: NUMBER(x) > 3),
    "flat_map": lambda f: f.rows.flat_map(lambda x: Data.from_tensors(x).repeat(2)),
    "interleave": lambda f: f.rows.interleave(Data.from_tensors, num_parallel_calls=2),
    "shuffle": lambda f: f.rows.shuffle(9),
    "repeat": lambda f: f.rows.repeat(2),
    "cache": lambda f: f.rows.cache(),
    "prefetch": lambda f: f.rows.prefetch(1),
    "batch": lambda f: f.rows.batch(5),
    "batch, shuffle": lambda f: f.rows.batch(5).shuffle(3).prefetch(1),
    "batch, drop_remainder": lambda f: f.rows.batch(4, drop_remainder=True),
    "batch, map by rows": lambda f: f.rows.batch(5).map(lambda x: NUMBER(x) * 2.0 + 1.0),
    "batch, parse": lambda f: f.rows.batch(5).map(lambda x: tf.io.decode_csv(x, [[0.0]])[0]),
    "batch, unbatch": lambda f: f.rows.batch(5).unbatch(),
    "rebatch": lambda f: f.rows.batch(5).rebatch(3),
    "padded_batch": lambda f: f.rows.map(tf.strings.bytes_split).map(lambda x: x)
    .padded_batch(5, padded_shapes=[3]),
    "ragged_batch": lambda f: f.rows.map(lambda x: tf.fill([tf.strings.length(x)], x))
    .ragged_batch(5),
    "any op of one file": lambda f: Data.from_tensor_slices(f.short).interleave(
        lambda name: LINES(name).skip(1).enumerate().take(2).map(lambda _, x: x)
    ),
    "list_files": lambda f: Data.list_files(f.short, shuffle=True).flat_map(LINES),
    "assert_cardinality": lambda f: f.rows.apply(tf.data.experimental.assert_cardinality(24)),
}  # fmt: skip
NEEDS_ALL: dict[str, tuple[str, Make]] = {
    "zip": ("ZipDataset", lambda f: Data.zip((f.rows, LINES(f.long))).batch(8)),
    "concatenate": ("ConcatenateDataset", lambda f: f.rows.concatenate(LINES(f.long))),
    "choose_from_datasets": (
        "DirectedInterleaveDataset",
        lambda f: Data.choose_from_datasets([f.rows, LINES(f.long)], Data.range(2).repeat()),
    ),
    "sample_from_datasets": (
        "DirectedInterleaveDataset",
        lambda f: Data.sample_from_datasets([f.rows, LINES(f.long)]),
    ),
    "rejection_resample": (
        "DirectedInterleaveDataset",
        lambda f: f.rows.rejection_resample(lambda _: 0, [1.0]),
    ),
    "enumerate": ("ZipDataset", lambda f: f.rows.enumerate()),
    "take": ("TakeDataset", lambda f: f.rows.take(10)),
    "skip": ("SkipDataset", lambda f: f.rows.skip(3)),
    "take_while": ("TakeWhileDataset", lambda f: f.rows.take_while(lambda x: NUMBER(x) < 9)),
    "shard": ("ShardDataset", lambda f: f.rows.shard(2, 1)),
    "scan": ("ScanDataset", lambda f: f.rows.scan(0, lambda n, x: (n + 1, (n, x)))),
    "unique": ("UniqueDataset", lambda f: f.rows.repeat(2).unique()),
    "ignore_errors": ("IgnoreErrorsDataset", lambda f: f.rows.ignore_errors()),
    "window": ("WindowDataset", lambda f: f.rows.window(5).flat_map(lambda w: w.batch(5))),
    "group_by_window": (
        "GroupByWindowDataset",
        lambda f: f.rows.group_by_window(
            lambda x: tf.strings.to_number(x, tf.int64) % 2, lambda _, w: w.batch(3), 3
        ),
    ),
    "bucket_by_sequence_length": (
        "GroupByWindowDataset",
        lambda f: f.rows.bucket_by_sequence_length(tf.strings.length, [2], [3, 3]),
    ),
    "batch, filter": (
        "FilterDataset",
        lambda f: f.rows.batch(5).filter(lambda x: tf.reduce_sum(NUMBER(x)) > 30),
    ),
    "batch, batch": ("BatchDatasetV2", lambda f: f.rows.batch(2).batch(2)),
    "map of batches, take": (
        "TakeDataset",
        lambda f: f.rows.batch(5).map(lambda x: NUMBER(x) - tf.reduce_mean(NUMBER(x))).take(2),
    ),
    "drop_remainder, unbatch": (
        "UnbatchDataset",
        lambda f: f.rows.batch(5, drop_remainder=True).map(lambda x: x).unbatch(),
    ),
    "variables": (
        "AssignAddVariableOp",
        lambda f: f.rows.map(lambda x: (x, counter.assign_add(0))).map(lambda x, _: x),
    ),
}
MAY_NEED_ALL: dict[str, Make] = {
    "mean": lambda f: f.rows.batch(5).map(lambda x: NUMBER(x) - tf.reduce_mean(NUMBER(x))),
    "two maps": lambda f: f.rows.batch(5).map(lambda x: x[::-1]).map(lambda x: (x,)),
    "padded_batch, map": lambda f: f.rows.map(tf.strings.bytes_split).map(lambda x: x)
    .padded_batch(5).map(tf.strings.length),
}  # fmt: skip


def flat(found: Any) -> list[Any]:
    """Return the rows of batches, or of elements."""
    for convert in ("to_list", "tolist"):
        if hasattr(found, convert):
            return flat(getattr(found, convert)())
    if isinstance(found, tuple) and isinstance(found[0], list):
        found = list(zip(*found, strict=True))
    if isinstance(found, list):
        return [row for one in found for row in flat(one)]
    return [found]


def split(dataset: Data) -> tuple[sharding.ShardableGraph, list[Any]]:
    """Return how a dataset is split, and the elements of all splits."""
    ready = sharding.prepare(dataset, lambda _: 3)
    parts = [sharding.shard(ready.graph_def, ready.policy, 3, index) for index in range(3)]
    return ready, [row for part in parts for row in run(part, dataset.element_spec)]


@pytest.mark.parametrize("name", BY_FILE)
def test_a_dataset_is_split_by_files_if_each_op_commutes_with_it(name: str, files: Files) -> None:
    dataset = BY_FILE[name](files)
    ready, found = split(dataset)
    assert (ready.policy, ready.warnings) == (FILE, ())
    assert sorted(flat(found)) == sorted(flat(elements(dataset)))


@pytest.mark.parametrize("name", NEEDS_ALL)
def test_a_dataset_that_needs_all_files_is_dealt_and_named(name: str, files: Files) -> None:
    op, make = NEEDS_ALL[name]
    dataset = make(files)
    ready, found = split(dataset)
    assert ready.policy == DEALT
    assert [op in warning and "entry point" in warning for warning in ready.warnings] == [True]
    if name not in ("sample_from_datasets", "rejection_resample"):  # their choices have no seeds
        assert sorted(flat(found)) == sorted(flat(elements(dataset)))
    with pytest.raises(ConfigError, match=f"{op}.*Set auto_shard_policy to AUTO or DATA"):
        sharding.prepare(with_policy(dataset, "FILE"), lambda _: 3)


@pytest.mark.parametrize("name", MAY_NEED_ALL)
def test_a_map_of_batches_may_need_all_files(name: str, files: Files) -> None:
    dataset = MAY_NEED_ALL[name](files)
    ready, found = split(dataset)
    assert ready.policy == DEALT
    assert ["set auto_shard_policy to FILE" in warning for warning in ready.warnings] == [True]
    assert sorted(flat(found)) == sorted(flat(elements(dataset)))
    asked = sharding.prepare(with_policy(dataset, "FILE"), lambda _: 3)
    assert asked.policy == FILE
    assert ["MapDataset gets the batches" in warning for warning in asked.warnings] == [True]


def test_the_rows_of_a_batch_are_dealt_to_the_same_step(files: Files) -> None:
    dataset = Data.zip((files.rows, LINES(files.long))).shuffle(9, seed=1).batch(6).prefetch(1)
    ready = sharding.prepare(dataset, lambda _: 3)
    parts = [sharding.shard(ready.graph_def, ready.policy, 3, index) for index in range(3)]
    dealt = [flat(run(part, dataset.element_spec)) for part in parts]
    for step, batch in enumerate(elements(dataset)):
        taken = [row for rows in dealt for row in rows[2 * step : 2 * step + 2]]
        assert sorted(taken) == sorted(flat(batch))
