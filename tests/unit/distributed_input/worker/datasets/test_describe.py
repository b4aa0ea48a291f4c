"""Drafts of entry points' jobs are completed from their datasets.

This module is long because one module of entry points serves all tests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, DatasetFnError, SpecError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.order.identity import ORDER_VERSION
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.datasets import describe as describe_cache
from distributed_input.worker.datasets.describe import DescribeCache, describe
from tests.unit.distributed_input.graph.graphcases import module_of

_CODE = """
import numpy as np
import tensorflow as tf

def batches(context):
    rows = context.get_per_replica_batch_size(8)
    return tf.data.Dataset.range(40).batch(rows)

def sharded(context, rows, batch=1, mapped=False):
    data = tf.data.Dataset.range(rows)
    data = data.map(lambda x: x + 1) if mapped else data
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(batch) if batch > 1 else data

def files(context, count):
    names = tf.data.Dataset.from_tensor_slices([f"{i}.tfrecord" for i in range(count)])
    names = names.shuffle(count, seed=1)
    names = names.shard(context.num_input_pipelines, context.input_pipeline_id)
    return names.interleave(tf.data.TFRecordDataset)

def texts(context):
    return tf.data.Dataset.from_tensor_slices(["x" * 500] * 9).shuffle(4)

def ragged(context):
    parts = tf.ragged.constant([[1], [2, 3]] * 9), ["x" * 500] * 18
    return tf.data.Dataset.from_tensor_slices(parts).shuffle(10)

def nested(context):
    return tf.data.Dataset.range(9).window(3).shuffle(2).flat_map(lambda data: data)

def many(context):
    data = tf.data.Dataset.range(100_000)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(10_000)

def documents(context):
    data = tf.data.Dataset.range(40)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.map(lambda row: {"tokens": tf.range(row)})

def infinite(context):
    return tf.data.Dataset.range(40).repeat()

def one_shard(context):
    return tf.data.Dataset.range(40).shard(2, 0)

def seeded(context):
    return tf.data.Dataset.range(40).shuffle(9, seed=context.input_pipeline_id + 1).repeat()

def by_hand(context):
    return tf.data.Dataset.from_tensor_slices(list(range(40))[context.input_pipeline_id :: 4])

def arrays(context):
    return [{"x": np.full(3, context.input_pipeline_id, np.float32)}]

def python(context):
    def load(x):
        y = tf.numpy_function(lambda x: x, [x], tf.int64)
        z = tf.cond(y > 1, lambda: tf.random.uniform([]), lambda: 0.0)
        return tf.ensure_shape(y, []), z
    return tf.data.Dataset.range(40).map(load, num_parallel_calls=4)

def counting(context):
    count = tf.Variable(0, dtype=tf.int64)
    def number(x):
        return count.assign_add(x)
    return tf.data.Dataset.range(40).map(number, num_parallel_calls=4)

def generator(context):
    signature = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=signature)

def counted_generator(context):
    return generator(context).apply(tf.data.experimental.assert_cardinality(3))

def endless_generator(context):
    return generator(context).apply(tf.data.experimental.assert_cardinality(3)).repeat()

def endless(context):
    while True:
        yield np.float32(1)

class Unsized(list):
    def __len__(self):
        raise TypeError("its length is not known")

def unsized(context):
    return Unsized([np.float32(1)])

class Squares:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return {"square": np.int64(index * index)}

def squares(context, rows):
    return Squares(rows)

def divided_squares(context):
    return Squares(100 // context.num_input_pipelines)

class LazySquares(Squares):
    def __init__(self, context):
        self.context = context

    def __len__(self):
        return 100 // self.context.num_input_pipelines

def lazy_squares(context):
    return LazySquares(context)

def broken_squares(context):
    return Squares("ten")

def unread(context):
    return [np.float32(1)] * 3

def read_early(context):
    return [np.float32(context.input_pipeline_id)]

def read_later(context):
    yield np.float32(1)
    yield np.float32(context.input_pipeline_id)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path) -> Iterator[None]:
    with module_of(tmp_path, "describe_of_test", _CODE):
        yield


def described(
    function: str,
    args: str = "",
    *,
    relaxed: bool = False,
    room: int = 0,
    partitions: int = 4,
    num_splits: int = 0,
) -> types_pb2.Job:
    entry = types_pb2.EntryPoint(target=f"describe_of_test:{function}", args_json=args)
    draft = types_pb2.Job(name="a", entry_point=entry, partitions=partitions, num_splits=num_splits)
    return describe(draft, relaxed, room)


def row_of(job: types_pb2.Job) -> tuple[Leaf, ...]:
    return ElementSpec.from_json(job.row_spec).leaves


def test_a_batched_dataset_sets_the_batch_size_of_the_job() -> None:
    job = described("batches")
    assert (job.global_batch_size, job.batched, job.infinite) == (8, True, False)
    assert row_of(job) == (Leaf("", "dense", "int64", ()),)


def test_the_rows_of_a_job_are_packed_ones() -> None:
    packing = types_pb2.Packing(length=64, method="best_fit", open_sequences=4)
    entry = types_pb2.EntryPoint(target="describe_of_test:documents", packing=packing)
    job = describe(types_pb2.Job(entry_point=entry, partitions=4, global_batch_size=8))
    assert (job.batched, job.global_batch_size, job.infinite) == (False, 8, False)
    assert [(leaf.path, leaf.shape) for leaf in row_of(job)] == [
        ("positions", (64,)), ("segment_ids", (64,)), ("tokens", (64,)),
    ]  # fmt: skip
    assert not job.warnings
    assert len(job.definitions) == 1
    entry.packing.length = 32
    other = describe(types_pb2.Job(entry_point=entry, partitions=4, global_batch_size=8))
    assert other.definitions != job.definitions


@pytest.mark.parametrize(
    ("args", "splits"),
    [
        ('{"rows": 20000}', 32),
        ('{"rows": 100000}', 96),
        ('{"rows": 100000, "batch": 50}', 96),
        ('{"rows": 100000, "mapped": true}', 8),  # each split computes all rows
    ],
)
def test_a_large_dataset_has_more_splits(args: str, splits: int) -> None:
    job = described("sharded", args, partitions=0)
    assert (job.num_splits, job.partitions, len(job.definitions)) == (splits, 8, 1)


@pytest.mark.parametrize(("room", "warned"), [(0, False), (8000, False), (7999, True)])
def test_the_memory_of_shuffle_buffers_is_estimated(room: int, warned: bool) -> None:
    """The size of a text is that of the first one: 500 bytes."""
    job = described("texts", room=room)
    assert job.split_bytes == 2000
    found = [text for text in job.warnings if "shuffle buffers of an open split" in text]
    assert len(found) == warned


@pytest.mark.parametrize(("function", "held"), [("ragged", 10 * 128), ("nested", 2 * 64)])
def test_elements_that_cannot_be_measured_are_described(function: str, held: int) -> None:
    job = described(function, partitions=0)
    assert (job.split_bytes, job.split_bytes_at_most) == (held, False)


def test_the_memory_is_that_of_a_split_with_the_final_number() -> None:
    job = described("many", partitions=0)
    assert (job.num_splits, job.split_bytes) == (96, 8 * 1042)


@pytest.mark.parametrize(("files", "splits"), [(3, 3), (40, 32), (400, 96)])
def test_splits_follow_the_number_of_files(files: int, splits: int) -> None:
    job = described("files", f'{{"count": {files}}}', partitions=0)
    assert (job.num_splits, job.partitions, len(job.definitions)) == (splits, 8, 1)
    assert ["files for 8 partitions" in warning for warning in job.warnings] == [True] * (files < 8)


def test_a_dataset_that_shards_records_has_a_warning_with_its_read_amplification() -> None:
    for given, splits in ((0, 4), (12, 12)):
        job = described("sharded", '{"rows": 40, "mapped": true}', num_splits=given)
        assert job.num_splits == splits
        (warning,) = job.warnings  # none that rows repeat
        assert f"read amplification is up to {splits}, because" in warning
        assert "Shard the list of files" in warning


@pytest.mark.parametrize(
    ("function", "splits", "repeated"),
    [
        ("batches", 16, True),
        ("infinite", 4, True),
        ("one_shard", 16, True),
        ("counting", 16, True),
        ("seeded", 4, False),
        ("by_hand", 16, False),
        ("python", 16, False),  # what its function reads is not in the graph
        ("generator", 4, False),  # it may be endless
        ("arrays", 16, False),
    ],
)
def test_a_dataset_that_is_not_sharded_has_a_warning(
    function: str, splits: int, repeated: bool
) -> None:
    job = described(function)
    assert job.num_splits == splits
    found = [text for text in job.warnings if "returns the same dataset" in text]
    assert found == repeated * [
        f"entry point describe_of_test:{function} returns the same dataset for split 0 and split "
        f"{splits - 1}, so each row is read {splits} times, once by each split: shard it, for "
        "example with dataset.shard(context.num_input_pipelines, context.input_pipeline_id)"
    ]


def test_a_dataset_of_one_split_need_not_be_sharded() -> None:
    job = described("batches", num_splits=1, partitions=1)
    assert (job.num_splits, list(job.warnings)) == (1, [])


@pytest.mark.parametrize(
    ("function", "splits", "infinite", "is_unknown"),
    [
        ("endless", 4, False, True),
        ("unsized", 4, False, True),
        ("arrays", 16, False, False),
        ("generator", 4, False, True),
        ("counted_generator", 16, False, False),
        ("endless_generator", 4, True, False),
        ("seeded", 4, True, False),
    ],
)
def test_a_dataset_that_may_never_end_has_one_split_for_each_partition(
    function: str, splits: int, infinite: bool, is_unknown: bool
) -> None:
    job = described(function)
    assert (job.num_splits, job.infinite, list(job.warnings)) == (splits, infinite, [])
    if infinite:
        with pytest.raises(ConfigError, match="only the first 4 splits would be read"):
            described(function, num_splits=16)
        return
    given = described(function, num_splits=16)
    assert given.num_splits == 16
    assert [text for text in given.warnings if "12 of 16 are not" in text] == list(given.warnings)
    assert len(given.warnings) == is_unknown


@pytest.mark.parametrize(
    ("function", "leaf"),
    [
        ("arrays", Leaf("x", "dense", "float32", (3,))),
        ("generator", Leaf("", "dense", "int64", ())),
    ],
)
def test_a_dataset_without_a_graph_has_a_spec(function: str, leaf: Leaf) -> None:
    assert row_of(described(function)) == (leaf,)


@pytest.mark.parametrize("relaxed", [False, True])
def test_functions_that_have_to_run_serially_get_a_warning_with_the_line(relaxed: bool) -> None:
    job = described("counting", relaxed=relaxed)
    line = next(i for i, it in enumerate(_CODE.split("\n"), 1) if "assign_add" in it)
    serial = [text for text in job.warnings if "num_parallel_calls" in text]
    assert len(serial) == (not relaxed)
    for warning in serial:
        assert "AssignAddVariableOp in Dataset_map_number" in warning
        assert f"describe_of_test.py:{line})" in warning


def test_python_functions_and_random_ops_in_parallel_maps_get_no_warning() -> None:
    assert not described("python").warnings


class CountingDescribe:
    """Completes drafts and records them."""

    def __init__(self) -> None:
        self.drafts: list[types_pb2.Job] = []
        self.broken = False

    def __call__(self, draft: types_pb2.Job, _consumer: str) -> types_pb2.Job:
        self.drafts.append(draft)
        if self.broken:
            raise DatasetFnError("broken")
        job = types_pb2.Job()
        job.CopyFrom(draft)
        job.num_splits = 10 + draft.partitions
        return job


def draft(name: str, partitions: int = 1) -> types_pb2.Job:
    return types_pb2.Job(name=name, partitions=partitions)


def test_jobs_that_differ_in_name_only_are_described_once() -> None:
    describe = CountingDescribe()
    cache = DescribeCache(describe)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(cache.job, [draft(f"job-{i}") for i in range(8)]))
    assert len(describe.drafts) == 1
    assert [(job.name, job.num_splits) for job in found] == [(f"job-{i}", 11) for i in range(8)]


def test_another_draft_is_described_once() -> None:
    describe = CountingDescribe()
    cache = DescribeCache(describe)
    partitions = [1, 2, 1]
    assert [cache.job(draft("a", p)).num_splits for p in partitions] == [10 + p for p in partitions]
    assert [one.partitions for one in describe.drafts] == [1, 2]


def test_a_change_of_the_returned_job_does_not_change_the_cache() -> None:
    cache = DescribeCache(CountingDescribe())
    cache.job(draft("a")).num_splits = 1
    assert cache.job(draft("a")).num_splits == 11


def test_an_error_is_not_cached() -> None:
    describe = CountingDescribe()
    cache = DescribeCache(describe)
    describe.broken = True
    with pytest.raises(DatasetFnError):
        cache.job(draft("a"))
    describe.broken = False
    assert cache.job(draft("a")).num_splits == 11


def test_a_job_that_starts_later_is_described_again() -> None:
    """The files of its dataset may have changed."""
    describe, now = CountingDescribe(), [0.0]
    cache = DescribeCache(describe, lambda: now[0])
    cache.job(draft("a"))
    now[0] = 5.0
    cache.job(draft("b"))
    assert len(describe.drafts) == 1
    now[0] = 5.1
    cache.job(draft("c"))
    assert len(describe.drafts) == 2


def test_a_description_that_hangs_fails_the_others_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_cache, "_MAX_WAIT_SECONDS", 0.2)
    begun, returns = threading.Event(), threading.Event()

    def describe(draft: types_pb2.Job, _consumer: str) -> types_pb2.Job:
        begun.set()
        returns.wait(30)
        return draft

    cache = DescribeCache(describe)
    with ThreadPoolExecutor(1) as pool:
        hangs = pool.submit(cache.job, draft("a"))
        try:
            assert begun.wait(10)
            with pytest.raises(UnavailableError, match="has been describing a dataset for"):
                cache.job(draft("b", 2))
        finally:
            returns.set()
        assert hangs.result(10).name == "a"


@pytest.mark.parametrize(("rows", "splits"), [(10, 16), (10_000_000, 100)])
def test_a_dataset_that_is_read_by_index_has_its_number_of_rows(rows: int, splits: int) -> None:
    job = described("squares", f'{{"rows": {rows}}}')
    assert (job.indexed_rows, job.order_version) == (rows, ORDER_VERSION)
    assert job.num_splits >= splits
    assert not job.infinite
    assert not job.warnings
    assert [leaf.dtype for leaf in row_of(job)] == ["int64"]


@pytest.mark.parametrize("seconds", [1.0, 1.5])
def test_a_slow_call_for_each_split_has_a_warning(seconds: float) -> None:
    entry = types_pb2.EntryPoint(target="describe_of_test:squares", args_json='{"rows": 10}')
    times = iter([0.0, seconds])
    job = describe(types_pb2.Job(name="a", entry_point=entry), clock=lambda: next(times))
    slow = "describe_of_test:squares took 1.5 s, and is called for each split"
    assert [slow in text for text in job.warnings] == [True] * (seconds > 1)


def test_a_dataset_without_rows_has_no_spec() -> None:
    with pytest.raises(SpecError, match="no elements"):
        described("squares", '{"rows": 0}')


@pytest.mark.parametrize("function", ["divided_squares", "lazy_squares"])
def test_a_dataset_that_is_read_by_index_is_not_divided_twice(function: str) -> None:
    with pytest.raises(SpecError, match="Squares, which the splits divide"):
        described(function)


def test_an_error_of_a_dataset_that_is_read_by_index_has_the_line_of_the_user() -> None:
    with pytest.raises(DatasetFnError, match="entry point describe_of_test:broken_squares"):
        described("broken_squares")


@pytest.mark.parametrize(
    ("function", "warned"),
    [("unread", True), ("read_early", False), ("read_later", False)],
)
def test_a_sequence_of_a_function_that_does_not_know_its_split_repeats_its_rows(
    function: str, warned: bool
) -> None:
    job = described(function, num_splits=4)
    found = [text for text in job.warnings if "each row is read 4 times" in text]
    assert len(found) == warned
