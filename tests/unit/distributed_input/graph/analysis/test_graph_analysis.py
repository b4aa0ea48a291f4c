"""The analysis of a graph finds the properties of its dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph.analysis.graph_analysis import GraphAnalysis, analyze
from distributed_input.graph.definition.canonical import serialize
from tests.unit.distributed_input.graph.graphcases import write_files

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(20)


def len_of(text: Any) -> Any:
    return tf.strings.length(text)


def facts(dataset: Data) -> GraphAnalysis:
    return analyze(serialize(dataset))


@pytest.mark.parametrize(
    ("make", "batched", "size"),
    [
        (lambda: ROWS, False, None),
        (lambda: ROWS.batch(4), True, 4),
        (lambda: ROWS.batch(4, num_parallel_calls=2), True, 4),
        (lambda: ROWS.map(lambda x: x, num_parallel_calls=2).batch(4), True, 4),
        (lambda: ROWS.batch(4).map(lambda x: x + 1).prefetch(1).repeat(2).shuffle(3), True, 4),
        (lambda: ROWS.map(tf.range).padded_batch(3), True, 3),
        (lambda: ROWS.map(tf.range).ragged_batch(3), True, 3),
        (lambda: ROWS.batch(4).batch(2), True, 2),
        (lambda: ROWS.batch(4).unbatch(), False, None),
        (lambda: ROWS.interleave(lambda _: ROWS.batch(6), num_parallel_calls=2), False, None),
        (lambda: ROWS.window(5).flat_map(lambda w: w.batch(5)), False, None),
        (lambda: ROWS.batch(4).concatenate(ROWS.batch(4)), False, None),
        (lambda: Data.zip((ROWS.batch(4), ROWS.batch(4))), False, None),
        (lambda: Data.sample_from_datasets([ROWS.batch(4), ROWS.batch(4)]), False, None),
        (lambda: ROWS.batch(4).map(lambda x: tf.reshape(x, [-1, 2])), False, None),
        (lambda: ROWS.batch(4).map(tf.reduce_sum), False, None),
        (lambda: ROWS.batch(4).map(lambda x: tf.concat([x, x], 0)), False, None),
        (lambda: ROWS.map(lambda x: tf.fill([4], x)), False, None),
        (lambda: ROWS.batch(4).filter(lambda x: x[0] > 1).take(3).skip(1).cache(), True, 4),
        (lambda: ROWS.batch(8).rebatch(16), True, 16),
        (lambda: ROWS.batch(8).rebatch([4, 4]), True, 4),
        (lambda: ROWS.batch(8).rebatch([4, 2]), True, None),
    ],
)
def test_only_certain_batches_are_found(
    make: Callable[[], Data], batched: bool, size: int | None
) -> None:
    found = facts(make()).batches
    assert (found.batched, found.size) == (batched, size)


@pytest.mark.parametrize(
    ("make", "drops"),
    [
        (lambda: ROWS.batch(4), False),
        (lambda: ROWS.batch(4, drop_remainder=True).prefetch(1), True),
        (lambda: ROWS.batch(4, drop_remainder=True).map(lambda x: x).batch(2), True),
        (lambda: ROWS.map(tf.range).padded_batch(3, drop_remainder=True), True),
        (lambda: ROWS.batch(6, drop_remainder=True).unbatch(), True),
        (lambda: ROWS.interleave(lambda _: ROWS.batch(6, drop_remainder=True)), False),
    ],
)
def test_a_drop_remainder_before_the_output_is_found(make: Callable[[], Data], drops: bool) -> None:
    assert facts(make()).drop_remainder is drops


@pytest.mark.parametrize(
    ("make", "infinite"),
    [
        (lambda: ROWS.repeat().take_while(lambda x: x < 4), None),
        (lambda: ROWS.take_while(lambda x: x < 4), False),
        (lambda: ROWS.repeat().batch(2).unbatch().window(3).flat_map(lambda w: w.batch(3)), True),
        (lambda: ROWS.window(3).flat_map(lambda w: w.repeat()), True),
        (lambda: ROWS.group_by_window(lambda x: x % 2, lambda _, w: w.batch(2), 2), False),
        (lambda: ROWS.interleave(lambda x: Data.range(x).repeat(2), num_parallel_calls=2), False),
        (lambda: chosen(ROWS, ROWS.repeat()), None),
        (lambda: chosen(ROWS.repeat(), ROWS.repeat()), True),
        (lambda: chosen(ROWS, ROWS.repeat(), stop_on_empty_dataset=False), True),
        (lambda: Data.choose_from_datasets([ROWS.repeat(), ROWS.repeat()], Data.range(2)), False),
        (
            lambda: Data.sample_from_datasets([ROWS, ROWS.repeat()], stop_on_empty_dataset=True),
            None,
        ),
        (lambda: Data.sample_from_datasets([ROWS, ROWS.repeat()]), True),
        (lambda: ROWS, False),
        (lambda: ROWS.repeat(3), False),
        (lambda: ROWS.repeat().shuffle(3).batch(2), True),
        (lambda: ROWS.repeat().filter(lambda x: x > 1), True),
        (lambda: ROWS.repeat().take(4), False),
        (lambda: ROWS.repeat().take(-1), True),
        (lambda: Data.zip((ROWS.repeat(), ROWS)), False),
        (lambda: Data.zip((ROWS.repeat(), ROWS.repeat())), True),
        (lambda: ROWS.concatenate(ROWS.repeat()), True),
        (lambda: ROWS.repeat().flat_map(lambda _: ROWS), True),
        (lambda: ROWS.flat_map(lambda _: ROWS.repeat()), True),
        (lambda: ROWS.flat_map(lambda _: ROWS), False),
        (Data.random, True),
        (lambda: Data.sample_from_datasets([ROWS, ROWS]), False),
        (lambda: Data.sample_from_datasets([ROWS.repeat(), ROWS.repeat()]), True),
    ],
)
def test_infinite_datasets_are_found(make: Callable[[], Data], infinite: bool | None) -> None:
    assert facts(make()).infinite is infinite


def chosen(*datasets: Data, **options: Any) -> Data:
    return Data.choose_from_datasets(datasets, Data.range(2).repeat(), **options)


def test_what_counts_elements_is_as_endless_as_they_are(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert facts(ROWS.repeat().enumerate()).infinite
    assert facts(ROWS.repeat().snapshot(folder)).infinite  # numbers its elements, too
    assert facts(ROWS.flat_map(lambda _: ROWS.repeat().enumerate())).infinite
    assert facts(ROWS.enumerate()).infinite is False
    assert facts(ROWS.snapshot(folder)).infinite is False
    assert facts(Data.zip((Data.range(5), ROWS.repeat()))).infinite is False


def test_an_endless_dataset_that_a_function_captures_is_not_a_window() -> None:
    endless = ROWS.repeat()
    assert facts(ROWS.flat_map(lambda _: endless)).infinite
    assert facts(ROWS.interleave(lambda _: endless.batch(2), num_parallel_calls=2)).infinite


INT4 = Data.from_tensor_slices(tf.cast([1, 2], tf.dtypes.as_dtype("int4")))  # is not pushed


@pytest.mark.parametrize(
    ("make", "selects_records"),
    [
        (lambda files: files.interleave(tf.data.TFRecordDataset).shard(2, 0), True),
        (lambda files: files.interleave(tf.data.TFRecordDataset).shard(2, 0).map(len_of), True),
        (lambda files: files.map(tf.io.read_file).shard(2, 0), True),
        (lambda files: files.shard(2, 0).interleave(tf.data.TFRecordDataset), False),
        (lambda files: files.shuffle(2).shard(2, 0).map(tf.io.read_file), False),
        (lambda files: files.map(tf.strings.strip).shard(2, 0).map(tf.io.read_file), False),
        (lambda files: files.shard(2, 0).map(tf.io.read_file), False),
        (lambda files: files.map(len_of).shard(2, 0).map(lambda x: x + 1), True),
        (lambda files: files.shuffle(2).shard(2, 0), True),
        (lambda files: files.shuffle(2).shard(2, 0).map(len_of), False),
        (lambda files: files.shard(2, 0), False),
        (lambda _: INT4.shard(2, 0), False),
        (lambda files: files, False),
    ],
)
def test_a_shard_that_selects_records_is_found(
    make: Callable[[Data], Data], selects_records: bool, tmp_path: Path
) -> None:
    """A shard of names of files selects no records. Neither does one that is pushed, or one of
    elements in memory, if a function after it costs more."""
    files = Data.from_tensor_slices(write_files(tmp_path, [2, 2]))
    assert bool(facts(make(files)).record_shard) is selects_records


def test_a_shard_of_a_source_that_skips_elements_is_found() -> None:
    numbers = tf.data.Dataset.range(8)
    names = tf.data.Dataset.from_tensor_slices(["a", "b"])
    assert facts(numbers.shard(2, 0).map(lambda x: x + 1)).shards_source
    assert facts(names.shard(2, 0)).shards_source
    assert facts(names.enumerate().take(2).shard(2, 0)).shards_source
    assert not facts(numbers.map(lambda x: x + 1).shard(2, 0)).shards_source
    assert not facts(numbers.shuffle(8).shard(2, 0)).shards_source
    assert not facts(numbers).shards_source


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda names: names.shard(2, 0).flat_map(tf.data.TFRecordDataset), 1),
        (lambda names: names.shuffle(8).shard(2, 0).map(tf.io.read_file), 1),
        (lambda names: tf.data.TFRecordDataset(names).shard(2, 0), 0),
        (lambda names: names.map(tf.io.read_file).shard(2, 0).flat_map(tf.data.TFRecordDataset), 0),
        (lambda names: names.shard(2, 0), 0),
        (lambda names: names.map(tf.io.read_file), 0),
    ],
)
def test_a_shard_of_the_names_of_files_is_found(make: Callable[[Data], Data], found: int) -> None:
    assert len(facts(make(Data.from_tensor_slices(["a", "b"]))).file_shards) == found


def test_python_in_a_graph_is_named() -> None:
    def load(x: Any) -> Any:
        return np.int64(x)

    dataset = ROWS.map(lambda x: tf.numpy_function(load, [x], tf.int64))
    assert [op.split(" in ")[0] for op in facts(dataset).python_ops] == ["PyFunc"]
    assert facts(Data.from_generator(lambda: iter([1]), output_types=tf.int32)).python_ops
    assert facts(ROWS).python_ops == ()


def test_a_cache_in_memory_is_useless_unless_it_is_repeated(tmp_path: Path) -> None:
    assert facts(ROWS.cache().batch(2)).useless_cache
    assert not facts(ROWS.cache().repeat(2)).useless_cache
    assert not facts(ROWS.cache(str(tmp_path / "kept"))).useless_cache
    assert not facts(ROWS).useless_cache
