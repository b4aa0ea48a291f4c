"""A trainer's dataset becomes a job whose splits contain every row once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError, SpecError
from distributed_input.api.proto import types_pb2
from distributed_input.graph.definition import packing, serialization
from distributed_input.graph.export import export_job, split_graph
from distributed_input.graph.type_specs import graph_spec
from distributed_input.rows.elements import ElementSpec
from tests.unit.distributed_input.graph.graphcases import elements, random_number, write_files

Data: TypeAlias = tf.data.Dataset


def export(dataset: Any, **draft: Any) -> tuple[types_pb2.Job, types_pb2.GraphDataset, list[str]]:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        job, data = export_job(types_pb2.Job(name="job", **draft), dataset)
    warned = [str(warning.message) for warning in given]
    assert warned == list(job.warnings)
    return job, types_pb2.GraphDataset.FromString(data), warned


def open_split(
    job: types_pb2.Job,
    dataset: types_pb2.GraphDataset,
    split: int,
    epoch: int = 0,
    folder: Path | None = None,
) -> Data:
    graph, serial = split_graph(dataset, job.num_splits, split, job.seed, epoch)
    assert not serial
    packing.restore(graph, dataset, folder)
    return serialization.instantiate(graph, graph_spec(ElementSpec.from_json(job.element_spec)))


def rows(job: types_pb2.Job, dataset: types_pb2.GraphDataset, epoch: int = 0) -> list[Any]:
    """Return the rows of all splits, in order."""
    out: list[Any] = []
    for split in range(job.num_splits):
        part = open_split(job, dataset, split, epoch)
        for element in elements(part):
            out += element if job.batched else [element]
    return out


def test_a_dataset_fn_becomes_a_job(tmp_path: Path) -> None:
    files = write_files(tmp_path, [3, 4, 5, 0, 6])

    def dataset_fn(ctx: Any) -> Data:
        names = Data.list_files(str(tmp_path / "*.tfrecord"))
        names = names.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        records = names.interleave(tf.data.TFRecordDataset).shuffle(10)
        return records.batch(ctx.get_per_replica_batch_size(24)).prefetch(1)

    job, dataset, warned = export(dataset_fn)
    assert (job.global_batch_size, job.partitions, job.num_splits) == (24, 8, 5)
    assert (job.batched, job.infinite) == (True, False)
    assert ["5 files for 8 partitions: 3 of them" in text for text in warned] == [True]
    first = rows(job, dataset)
    assert sorted(first) == sorted(elements(tf.data.TFRecordDataset(files)))
    assert rows(job, dataset) == first != rows(job, dataset, epoch=1)


def test_a_dataset_fn_can_use_the_split_as_a_python_integer() -> None:
    def dataset_fn(ctx: Any) -> Data:
        mine = np.random.permutation(40)[ctx.input_pipeline_id :: ctx.num_input_pipelines]
        return Data.from_tensor_slices(mine).map(
            lambda x: tf.strings.join([f"{ctx.input_pipeline_id:02d}-", tf.strings.as_string(x)])
        )

    job, dataset, _ = export(dataset_fn, partitions=2)
    assert (job.num_splits, job.batched) == (8, False)
    made = [row.decode().split("-") for row in rows(job, dataset)]
    assert sorted(int(row) for _, row in made) == list(range(40))
    assert {int(split) for split, _ in made} == set(range(8))


def test_a_large_dataset_fn_has_more_splits_and_one_of_few_files_fewer(tmp_path: Path) -> None:
    def rows(context: tf.distribute.InputContext) -> Data:
        return Data.range(50_000).shard(context.num_input_pipelines, context.input_pipeline_id)

    def files(context: tf.distribute.InputContext) -> Data:
        names = Data.from_tensor_slices(write_files(tmp_path, [1] * 3))
        names = names.shard(context.num_input_pipelines, context.input_pipeline_id)
        return names.flat_map(tf.data.TFRecordDataset)

    for dataset_fn, splits in ((rows, 48), (files, 3)):
        job, dataset, _ = export(dataset_fn, partitions=4)
        assert (job.num_splits, len(dataset.graphs)) == (splits, splits)


def test_an_infinite_dataset_has_one_split_per_partition() -> None:
    job, _, _ = export(lambda ctx: Data.range(4).repeat().batch(ctx.get_per_replica_batch_size(4)))
    assert (job.infinite, job.partitions, job.num_splits) == (True, 4, 4)


def test_the_resources_values_are_used() -> None:
    job, dataset, _ = export(
        lambda ctx: Data.range(40).shard(ctx.num_input_pipelines, ctx.input_pipeline_id).batch(3),
        partitions=3,
        num_splits=5,
        global_batch_size=6,
    )
    assert (job.partitions, job.num_splits, len(dataset.graphs)) == (3, 5, 5)
    assert sorted(rows(job, dataset)) == list(range(40))


def test_tables_arrays_and_vocabulary_files_are_sent_with_the_dataset(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("a\nb\nc\n")
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            str(words), tf.string, 0, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        ),
        1,
    )
    weights = tf.Variable([10, 20, 30, 40], dtype=tf.int64)
    dataset = Data.from_tensor_slices(["c", "a", "q"]).map(
        lambda word: tf.gather(weights, table.lookup(word))
    )
    job, made, _ = export(dataset)
    words.unlink()
    assert sorted(rows(job, made)) == [10, 30, 40]


def test_a_plain_dataset_is_split_by_files(tmp_path: Path) -> None:
    files = write_files(tmp_path, [3] * 6)
    job, dataset, warned = export(tf.data.TFRecordDataset(files).shuffle(5).batch(4))
    assert (dataset.shard_policy, job.partitions, job.num_splits) == ("FILE", 4, 6)
    assert job.shard_policy == "FILE"
    assert (job.global_batch_size, job.batched, warned) == (4, True, [])
    assert sorted(rows(job, dataset)) == sorted(elements(tf.data.TFRecordDataset(files)))


def test_splitting_by_elements_warns_about_its_cost() -> None:
    job, dataset, warned = export(Data.range(40).shuffle(40).batch(4))
    assert (dataset.shard_policy, job.num_splits, len(dataset.graphs)) == ("DATA", 4, 1)
    assert "cannot find appropriate reader" in warned[0]
    assert "each of the 4 splits reads and computes the whole dataset" in warned[1]
    assert sorted(rows(job, dataset)) == list(range(40))


@pytest.mark.parametrize("plain", [True, False])
def test_drop_remainder_moves_to_the_job_and_drops_no_rows_of_splits(plain: bool) -> None:
    def dataset_fn(ctx: Any) -> Data:
        mine = Data.range(50).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        size = ctx.get_per_replica_batch_size(16)
        return mine.map(lambda x: x).batch(size, drop_remainder=True).prefetch(2)

    whole = Data.range(50).batch(16, drop_remainder=True).prefetch(2)
    job, dataset, warned = export(whole if plain else dataset_fn)
    assert job.remainder == types_pb2.DROP
    assert not [warning for warning in warned if "drop_remainder" in warning]
    assert sorted(rows(job, dataset)) == list(range(50))


def test_a_drop_remainder_that_later_ops_need_is_kept() -> None:
    dataset = Data.range(50).batch(16, drop_remainder=True).map(lambda x: tf.reshape(x, [4, 4]))
    job, made, warned = export(dataset)
    assert (job.remainder, job.batched, job.global_batch_size) == (types_pb2.KEEP, False, 0)
    assert not any("drop_remainder" in warning for warning in warned)
    assert sorted(rows(job, made)) == elements(dataset)

    def dataset_fn(ctx: Any) -> Data:
        mine = Data.range(50).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        batches = mine.batch(ctx.get_per_replica_batch_size(16), drop_remainder=True)
        return batches.map(lambda x: tf.reshape(x, [-1, 1]))

    assert any("drop_remainder=True: it loses rows" in text for text in export(dataset_fn)[2])


def test_a_padded_batch_is_sent_as_rows_and_padded_in_each_step() -> None:
    lines = Data.range(1, 41).map(lambda x: tf.fill([x % 7], x))
    dataset = lines.padded_batch(8, padding_values=tf.constant(-1, tf.int64), drop_remainder=True)
    job, made, _ = export(dataset.prefetch(1))
    assert (job.global_batch_size, job.batched, job.remainder) == (8, False, types_pb2.DROP)
    assert [leaf.padding for leaf in ElementSpec.from_json(job.row_spec).leaves] == [-1]
    assert sorted(rows(job, made)) == sorted(elements(lines))

    def dataset_fn(ctx: Any) -> Data:
        mine = lines.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        return mine.padded_batch(ctx.get_per_replica_batch_size(8))

    job = export(dataset_fn)[0]
    assert (job.batched, ElementSpec.from_json(job.row_spec).leaves[0].padding) == (True, 0)


def test_batches_that_are_padded_together_stay_rows() -> None:
    pairs = Data.range(14).batch(2)
    job, made, _ = export(pairs.padded_batch(2).prefetch(1), partitions=2, num_splits=4)
    assert (job.shard_policy, job.num_splits, job.batched) == ("DATA", 4, False)
    assert sorted(rows(job, made)) == elements(pairs)


@pytest.mark.slow
def test_a_batch_in_a_function_makes_rows_and_a_warning() -> None:
    def windows(ctx: Any, asks: bool = False) -> Data:
        mine = Data.range(104).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        size = ctx.get_per_replica_batch_size(40) if asks else 5
        return mine.window(size, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(size))

    job, _, warned = export(windows, global_batch_size=8)
    leaf = ElementSpec.from_json(job.row_spec).leaves[0]
    assert (job.batched, job.global_batch_size, leaf.shape) == (False, 8, (None,))
    assert any(
        "each element is one of the 8 rows of a step, because FlatMapDataset" in text
        and "call context.get_per_replica_batch_size(rows)" in text
        for text in warned
    )
    asked, _, warned = export(lambda ctx: windows(ctx, asks=True))
    assert (asked.batched, asked.global_batch_size) == (True, 40)
    assert not any("each element is one of" in text for text in warned)


@pytest.mark.parametrize("rebatched", [True, False])
def test_a_rebatched_plain_dataset_has_the_new_batch_size(rebatched: bool) -> None:
    job, _, _ = export(
        Data.range(64).batch(8).rebatch(16) if rebatched else Data.range(64).batch(8)
    )
    assert (job.batched, job.global_batch_size) == (True, 16 if rebatched else 8)


def test_repeated_batches_without_remainder_are_dealt_as_they_are() -> None:
    batches = Data.range(10).batch(4, drop_remainder=True)
    job, made, warned = export(batches.repeat(2))
    assert sorted(rows(job, made)) == sorted([*range(8)] * 2)
    assert not any("Repeat before batch" in text for text in warned)
    _, _, warned = export(Data.range(10).batch(4).repeat(2))
    assert any("RepeatDataset follows a batch: tf.data ends each" in text for text in warned)
    assert not export(Data.from_tensors([1]).batch(8, drop_remainder=True).repeat())[0].infinite


def test_sharding_records_after_reading_gives_a_warning(tmp_path: Path) -> None:
    write_files(tmp_path, [2, 2])

    def dataset_fn(ctx: Any) -> Data:
        names = Data.list_files(str(tmp_path / "*.tfrecord"), shuffle=False)
        records = names.flat_map(tf.data.TFRecordDataset)
        return records.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)

    _, _, warned = export(dataset_fn)
    assert "read amplification is up to 8, because each of the 8 splits" in warned[0]


def test_a_shard_that_no_source_carries_out_has_a_split_for_each_partition() -> None:
    def dataset_fn(ctx: Any) -> Data:
        data = Data.range(90_000).map(lambda x: x + 1)
        return data.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)

    job, _, warned = export(dataset_fn)
    assert (job.partitions, job.num_splits, job.read_amplification) == (8, 8, 8)
    assert "read amplification is up to 8" in warned[0]


@pytest.mark.parametrize("endless", [False, True])
def test_a_dataset_fn_that_does_not_shard_gives_a_warning(endless: bool) -> None:
    data = Data.range(4).repeat() if endless else Data.range(4)
    _, _, warned = export(lambda _: data, num_splits=3)
    assert warned == [
        "dataset_fn returns the same dataset for split 0 and split 2, so each row is read 3 times, "
        "once by each split: shard it, for example with dataset.shard(context.num_input_pipelines, "
        "context.input_pipeline_id)"
    ]


@pytest.mark.parametrize(
    ("dataset", "splits"),
    [
        (lambda _: Data.range(4), 1),
        (lambda ctx: Data.range(4).shard(ctx.num_input_pipelines, ctx.input_pipeline_id), 3),
        (lambda ctx: Data.range(4).take(int(ctx.input_pipeline_id == 1)), 3),
        (lambda ctx: Data.range(9).shuffle(9, seed=ctx.input_pipeline_id + 1).repeat(), 3),
        (Data.range(4), 3),
    ],
    ids=["one split", "sharded", "one differs", "seeded", "plain"],
)
def test_other_datasets_give_no_warning_of_repeated_rows(dataset: Any, splits: int) -> None:
    _, _, warned = export(dataset, num_splits=splits)
    assert not [text for text in warned if "returns the same dataset" in text]


@pytest.mark.parametrize("plain", [True, False])
def test_python_functions_are_rejected_with_a_remedy(plain: bool) -> None:
    def parse(x: Any) -> Any:
        return x

    dataset = Data.range(3).map(lambda x: tf.numpy_function(parse, [x], tf.int64))
    dataset = dataset.map(lambda x: tf.ensure_shape(x, []))
    with pytest.raises(ConfigError, match=r"calls Python \(PyFunc in .*entry point"):
        export(dataset if plain else lambda _: dataset)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            lambda: Data.range(3).map(lambda x: {"a": tf.cast(x, "float32")}),
            "component 'a' is dense float32",
        ),
        (lambda: Data.range(3).map(lambda x: {"b": x}), "elements {'b'"),
    ],
)
def test_splits_with_different_elements_are_named(other: Any, message: str) -> None:
    def dataset_fn(ctx: Any) -> Data:
        if ctx.input_pipeline_id == 3:
            return other()
        return Data.range(3).map(lambda x: {"a": x})

    with pytest.raises(SpecError, match=message) as caught:
        export(dataset_fn)
    assert "split 3" in str(caught.value)


def test_two_global_batch_sizes_are_rejected() -> None:
    with pytest.raises(ConfigError, match="16"):
        export(
            lambda ctx: Data.range(9).batch(ctx.get_per_replica_batch_size(16)),
            global_batch_size=8,
        )


def test_large_constants_are_stored_once_and_mapped_from_one_file(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (100, 32, 32), np.uint8)
    names = np.array([f"{i:0900d}" for i in range(100)], object)

    def dataset_fn(ctx: Any) -> Data:
        whole = Data.from_tensor_slices({"i": images, "n": names, "x": tf.range(100)})
        return whole.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)

    job, dataset, _ = export(dataset_fn, partitions=2)
    assert len(dataset.graphs) == 8
    assert len(dataset.constants) == 2
    assert sum(map(len, dataset.graphs)) < 50_000
    seen = []
    for split in range(8):
        part = open_split(job, dataset, split, folder=tmp_path)
        for row in part.as_numpy_iterator():
            seen.append(int(row["x"]))
            assert (row["i"] == images[row["x"]]).all()
            assert row["n"].decode() == names[row["x"]]
    assert sorted(seen) == list(range(100))
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [images.nbytes]


def test_the_same_program_exports_the_same_bytes() -> None:
    def program() -> bytes:
        images = np.arange(1 << 15, dtype=np.float32).reshape(8, -1)

        def dataset_fn(ctx: Any) -> Data:
            mine = Data.from_tensor_slices(images).shuffle(8).shard(4, ctx.input_pipeline_id)
            return mine.map(lambda x: x * tf.random.uniform([]))

        return export_job(types_pb2.Job(num_splits=4), dataset_fn)[1]

    first = program()
    random_number()
    assert program() == first
