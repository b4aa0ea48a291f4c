"""The splits of a dataset contain every row once, and select records from one source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.graph import sharding
from distributed_input.graph.definition.canonical import fingerprint, serialize
from distributed_input.graph.determinism import force_determinism
from distributed_input.graph.random import selecting, selections
from distributed_input.graph.random.seeds import reseed
from distributed_input.graph.sharding import find_record_shard
from tests.unit.distributed_input.graph.graphcases import (
    elements,
    epoch_of,
    run,
    with_policy,
    write_files,
)

Data: TypeAlias = tf.data.Dataset
SIZES = [3, 1, 4, 0, 5]
RECORDS = sorted(f"{i}-{j}".encode() for i, size in enumerate(SIZES) for j in range(size))


def prepared(dataset: Data, partitions: int = 1) -> sharding.ShardableGraph:
    return sharding.prepare(dataset, lambda _: partitions)


def splits(dataset: Data, num_splits: int, epoch: int = 0) -> list[list[Any]]:
    ready = prepared(dataset)
    ends = {
        split: sharding.shard(ready.graph_def, ready.policy, num_splits, split)
        for split in (0, num_splits - 1)
    }
    certain = selecting.shards_by_split(ends, num_splits)
    out = []
    for split in range(num_splits):
        part = sharding.shard(ready.graph_def, ready.policy, num_splits, split)
        own = selections.find(part, num_splits, split, certain)
        force_determinism(part)
        out.append(run(reseed(part, 1, epoch, split, own), dataset.element_spec))
    return out


def flat(parts: list[Any]) -> list[Any]:
    """Return the rows of all splits, batched or not."""
    out: list[Any] = []
    for part in parts:
        out += flat(part) if isinstance(part, list) else [part]
    return out


def list_files(files: list[str]) -> Data:
    return Data.list_files(str(Path(files[0]).parent / "*.tfrecord"))


READERS = {
    "names": tf.data.TFRecordDataset,
    "interleave": lambda files: Data.from_tensor_slices(files).interleave(tf.data.TFRecordDataset),
    "parallel": lambda files: Data.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    ),
    "list_files": lambda files: list_files(files).flat_map(tf.data.TFRecordDataset),
    "shuffled list": lambda files: tf.data.TFRecordDataset(
        Data.from_tensor_slices(files).shuffle(9)
    ),
    "shuffled records": lambda files: tf.data.TFRecordDataset(files).shuffle(20),
    "batches": lambda files: tf.data.TFRecordDataset(files).shuffle(20).batch(4).prefetch(1),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("num_splits", [1, 2, 5, 8])
def test_file_sharding_reads_every_record_once(
    reader: str, num_splits: int, tmp_path: Path
) -> None:
    dataset = with_policy(READERS[reader](write_files(tmp_path, SIZES)), "FILE")
    parts = splits(dataset, num_splits)
    assert sorted(flat(parts)) == RECORDS
    files_of = [{record[0] for record in flat(part)} for part in parts]
    assert sum(map(len, files_of)) == len({record[0] for record in RECORDS})
    assert parts == splits(dataset, num_splits)


@pytest.mark.parametrize("reader", READERS)
def test_data_sharding_of_readers_reads_every_record_once(reader: str, tmp_path: Path) -> None:
    dataset = with_policy(READERS[reader](write_files(tmp_path, SIZES)), "DATA")
    for epoch in (0, 1):
        assert sorted(flat(splits(dataset, 3, epoch))) == RECORDS


def test_with_more_splits_than_files_some_splits_are_empty(tmp_path: Path) -> None:
    parts = splits(tf.data.TFRecordDataset(write_files(tmp_path, SIZES)), 9)
    assert [bool(part) for part in parts] == [True, True, True, False, True, *[False] * 4]


SOURCES = {
    "range": lambda: Data.range(28),
    "unseeded shuffle": lambda: Data.range(28).shuffle(28),
    "shuffled batches": lambda: Data.range(28).shuffle(28).batch(3),
    "sampled": lambda: Data.sample_from_datasets([Data.range(14), Data.range(14, 28)]),
    "random choice": lambda: (
        Data.range(28).map(lambda x: (x, tf.random.uniform([], 0, 9, tf.int32))).map(lambda x, _: x)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("num_splits", [1, 3, 40])
def test_data_sharding_reads_every_element_once(source: str, num_splits: int) -> None:
    dataset = with_policy(SOURCES[source](), "DATA")
    for epoch in (0, 1):
        assert sorted(flat(splits(dataset, num_splits, epoch))) == list(range(28))


def test_a_shard_op_of_the_user_is_not_changed(tmp_path: Path) -> None:
    files = write_files(tmp_path, SIZES)
    dataset = Data.from_tensor_slices(files).shard(2, 0).flat_map(tf.data.TFRecordDataset)
    parts = splits(with_policy(dataset, "FILE"), 2)
    assert sorted(flat(parts)) == sorted(elements(dataset))
    assert all(parts)


def test_policy_off_gives_all_elements_to_every_split() -> None:
    assert splits(with_policy(Data.range(4), "OFF"), 2) == [[0, 1, 2, 3]] * 2


def test_auto_shards_by_files_if_the_dataset_reads_files(tmp_path: Path) -> None:
    files = write_files(tmp_path, SIZES)
    ready = prepared(tf.data.TFRecordDataset(files).batch(2), partitions=4)
    assert (ready.policy, ready.files, ready.warnings) == ("FILE", 5, ())


def test_auto_shards_by_elements_with_a_warning_without_files() -> None:
    ready = prepared(Data.range(4).batch(2))
    assert (ready.policy, ready.files) == ("DATA", None)
    assert "cannot find appropriate reader dataset op(s) to shard" in ready.warnings[0]


def test_auto_shards_by_elements_if_there_are_fewer_files_than_partitions(tmp_path: Path) -> None:
    dataset = tf.data.TFRecordDataset(write_files(tmp_path, SIZES))
    assert prepared(dataset, partitions=8).policy == "DATA"
    asked = prepared(with_policy(dataset, "FILE"), partitions=8)
    assert asked.policy == "FILE"
    assert "5 files for 8 partitions" in asked.warnings[0]


@pytest.mark.parametrize(
    ("policy", "message"), [("FILE", "no reader of files"), ("HINT", "stock tf.data service")]
)
def test_a_policy_that_cannot_be_applied_is_rejected(policy: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepared(with_policy(Data.range(4), policy))


def test_files_are_counted(tmp_path: Path) -> None:
    files = write_files(tmp_path, SIZES)
    source = Data.from_tensor_slices(files)
    counts = {
        5: tf.data.TFRecordDataset(files),
        3: source.filter(lambda f: tf.strings.regex_full_match(f, ".*[013].tfrecord")).flat_map(
            tf.data.TFRecordDataset
        ),
        None: source.repeat().flat_map(tf.data.TFRecordDataset),
    }
    for count, dataset in counts.items():
        assert sharding.count_files(sharding.prepare_file_sharding(dataset)) == count
    assert sharding.count_files(prepared(Data.range(3)).graph_def) is None


def test_sharding_keeps_the_structure_of_elements() -> None:
    dataset = Data.range(6).map(lambda x: {"a": x, "b": tf.fill([2], x)})
    ready = prepared(with_policy(dataset, "DATA"))
    part = run(sharding.shard(ready.graph_def, "DATA", 3, 1), dataset.element_spec)
    assert part == [{"a": 1, "b": [1, 1]}, {"a": 4, "b": [4, 4]}]


def test_the_elements_before_shard_ops_are_counted(tmp_path: Path) -> None:
    names = Data.from_tensor_slices(["a"] * 5)
    read = names.shuffle(9).shard(2, 0).flat_map(tf.data.TFRecordDataset)
    more = Data.range(7).shard(2, 0).map(lambda _: b"")
    unknown = names.filter(lambda _: True).shard(2, 0)
    for dataset, count in [
        (names, None),
        (read, 5),
        (Data.zip((read, more)), 7),
        (read.concatenate(unknown), None),
    ]:
        graph = serialize(dataset)
        shards = [node.name for node in graph.node if node.op == "ShardDataset"]
        assert sharding.count_before(graph, shards) == count


NUMBERS = Data.range(20).map(lambda x: x * 3)


def python_function(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda value: value, [x], tf.int64), [])


def record_shard(data: Data, batched: bool = False, split: int = 1, splits: int = 4) -> Any:
    return find_record_shard(reseed(serialize(data), 7, 0, split), splits, split, batched)


def test_the_source_has_the_records_of_all_splits() -> None:
    sources = set()
    for split in range(4):
        data = NUMBERS.shuffle(20).shard(4, split).batch(2)
        shard = record_shard(data, True, split)
        sources.add(fingerprint(shard.source))
        records = run(shard.source, shard.spec[0])
        assert sorted(records) == [3 * x for x in range(20)]
        assert flat(epoch_of(data, 7, 0, split)) == records[split::4]
    assert len(sources) == 1


@pytest.mark.parametrize(
    ("after", "batched", "found"),
    [
        (lambda data: data, False, True),
        (lambda data: data, True, False),
        (lambda data: data.prefetch(1), False, True),
        (lambda data: data.batch(3).prefetch(2), True, True),
        (lambda data: data.batch(3), False, False),
        (lambda data: data.batch(3, num_parallel_calls=2), True, True),
        (lambda data: data.batch(2).batch(2), True, False),
        (lambda data: data.batch(3, drop_remainder=True), True, False),
        (lambda data: data.map(lambda x: x + 1).batch(2), True, False),
        (lambda data: data.shuffle(3), False, False),
        (lambda data: data.repeat(2), False, False),
        (lambda data: data.take(2), False, False),
    ],
)
def test_only_batches_may_follow_the_shard(
    after: Callable[[Data], Data], batched: bool, found: bool
) -> None:
    assert (record_shard(after(NUMBERS.shard(4, 1)), batched) is not None) is found


def test_the_components_of_a_record_are_in_the_order_of_the_structure() -> None:
    data = NUMBERS.map(lambda x: {"b": tf.cast(x, tf.float32), "a": (None, tf.fill([2, 3], x))})
    spec = record_shard(data.shard(4, 1)).spec
    assert spec == (tf.TensorSpec([2, 3], tf.int64), tf.TensorSpec([], tf.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: NUMBERS,
        lambda folder: NUMBERS.shard(4, 2),  # of another split
        lambda folder: NUMBERS.shard(3, 1),
        lambda folder: Data.range(20).shard(4, 1),  # skips at no cost
        lambda folder: NUMBERS.cache().shard(4, 1),
        lambda folder: NUMBERS.cache(f"{folder}/cache").shard(4, 1),
        lambda folder: Data.range(20).shard(2, 0).map(lambda x: x).shard(4, 1),
        lambda folder: NUMBERS.map(tf.range).shard(4, 1),  # of different sizes
        lambda folder: NUMBERS.map(lambda x: tf.sparse.eye(3)).shard(4, 1),
        lambda folder: NUMBERS.map(python_function).shard(4, 1),  # may depend on the split
    ],
)
def test_a_source_that_cannot_be_shared_is_not_found(
    make: Callable[[Path], Data], tmp_path: Path
) -> None:
    assert record_shard(make(tmp_path)) is None


def test_a_single_split_has_nothing_to_share() -> None:
    assert record_shard(NUMBERS.shard(1, 0), split=0, splits=1) is None
