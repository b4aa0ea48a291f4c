"""Splits that select records have one source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.tfdata.graph import serialization
from distributed_input.tfdata.graph.canonical import fingerprint, serialize
from distributed_input.tfdata.random.seeds import reseed
from distributed_input.tfdata.record_sharding import RecordShard, find
from tests.unit.distributed_input.tfdata.graphcases import elements

Data: TypeAlias = tf.data.Dataset
RECORDS = Data.range(20).map(lambda x: x * 3)


def python_function(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda value: value, [x], tf.int64), [])


def found(data: Data, split: int = 1, splits: int = 4) -> RecordShard | None:
    return find(reseed(serialize(data), 7, 0, split), splits, split)


def test_the_source_has_the_records_of_all_splits() -> None:
    def make(split: int) -> Data:
        return RECORDS.shuffle(20).shard(4, split).map(lambda x: x + split).batch(2)

    shards = [found(make(split), split) for split in range(4)]
    assert all(shards)
    assert len({fingerprint(shard.source) for shard in shards if shard}) == 1
    for split, shard in enumerate(shards):
        assert shard is not None
        graph = reseed(serialize(make(split)), 7, 0, split)
        records = elements(serialization.instantiate(shard.source, shard.spec[0]))
        assert sorted(records) == [3 * x for x in range(20)]
        rows = serialization.instantiate(graph, tf.TensorSpec([None], tf.int64)).unbatch()
        assert elements(rows) == [x + split for x in records[split::4]]


@pytest.mark.parametrize(
    ("after", "batches"),
    [
        (lambda data: data, 0),
        (lambda data: data.prefetch(1), 0),
        (lambda data: data.batch(3).prefetch(2), 1),
        (lambda data: data.batch(3, num_parallel_calls=2), 1),
        (lambda data: data.batch(2).batch(2), 2),
        (lambda data: data.batch(3, drop_remainder=True), None),
        (lambda data: data.map(lambda x: x + 1).batch(2), None),
        (lambda data: data.shuffle(3), None),
        (lambda data: data.repeat(2), None),
        (lambda data: data.take(2), None),
    ],
)
def test_ops_that_only_batch_are_counted(after: Callable[[Data], Data], batches: Any) -> None:
    shard = found(after(RECORDS.shard(4, 1)))
    assert shard is not None
    assert shard.batches == batches


def test_the_components_of_a_record_are_in_the_order_of_the_structure() -> None:
    data = RECORDS.map(lambda x: {"b": tf.cast(x, tf.float32), "a": (None, tf.fill([2, 3], x))})
    shard = found(data.shard(4, 1))
    assert shard is not None
    assert shard.spec == (tf.TensorSpec([2, 3], tf.int64), tf.TensorSpec([], tf.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: RECORDS,
        lambda folder: RECORDS.shard(4, 2),  # of another split
        lambda folder: RECORDS.shard(3, 1),
        lambda folder: Data.range(20).shard(4, 1),  # skips at no cost
        lambda folder: RECORDS.cache().shard(4, 1),
        lambda folder: RECORDS.cache(f"{folder}/cache").shard(4, 1),
        lambda folder: Data.range(20).shard(2, 0).map(lambda x: x).shard(4, 1),
        lambda folder: RECORDS.map(tf.range).shard(4, 1),  # of different sizes
        lambda folder: RECORDS.map(lambda x: tf.sparse.eye(3)).shard(4, 1),
        lambda folder: RECORDS.map(python_function).shard(4, 1),  # may depend on the split
    ],
)
def test_a_source_that_cannot_be_shared_is_not_found(
    make: Callable[[Path], Data], tmp_path: Path
) -> None:
    assert found(make(tmp_path)) is None


def test_a_single_split_has_nothing_to_share() -> None:
    assert found(RECORDS.shard(1, 0), 0, 1) is None
