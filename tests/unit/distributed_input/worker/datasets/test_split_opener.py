"""Splits of entry points: a cached graph has the same rows as a dataset that is built again.

This module is long because one module of entry points serves all tests.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import JobConflictError
from distributed_input.api.proto import types_pb2
from distributed_input.graph import batching, buffers
from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.graph.definition import serialization
from distributed_input.graph.export import export_job
from distributed_input.worker.datasets import shared_passes, split_opener
from distributed_input.worker.datasets.describe import describe
from distributed_input.worker.datasets.split_iterator import SplitIterator, options_of
from distributed_input.worker.datasets.split_opener import SplitOpener
from testing.bench.shuffles import PIPELINES, alone, in_splits, share_deviation, windows
from tests.unit.distributed_input.graph.graphcases import module_of

# Entry points; CALLS has the split of each call.
_CODE = """
import random
import numpy as np
import tensorflow as tf
from distributed_input import Indexed

CALLS = []

def rows(context, size=1):
    CALLS.append(context.input_pipeline_id)
    data = tf.data.Dataset.range(40).shuffle(40)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    padding = np.zeros(size, np.uint8)
    return data.map(lambda row: (row, tf.random.uniform([]), tf.reduce_sum(padding)))

def records(context, load=lambda row: row):
    data = tf.data.Dataset.range(60).shuffle(60)
    data = data.map(lambda row: (load(row), tf.random.uniform([])))
    data = data.map(lambda row, value: {"row": tf.ensure_shape(row, []), "value": value})
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(8)).prefetch(1)

def mapped_records(context):
    return records(context).map(lambda batch: batch)

def python_records(context):
    return records(context, lambda row: tf.numpy_function(lambda x: x, [row], tf.int64))

def python(context):
    def load(row):
        CALLS.append(int(row))
        return row
    def number(row, value, _):
        return tf.ensure_shape(tf.numpy_function(load, [row], tf.int64), []), value
    return rows(context).map(number).batch(context.get_per_replica_batch_size(4))

def padded(context):
    batch = context.get_per_replica_batch_size(8)
    return rows(context).map(lambda row, *_: row).padded_batch(batch)

def cached(context, path):
    data = tf.data.Dataset.range(40).shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.cache(path).map(lambda row: (row, row + 1))

def by_closure(context, factor=2):
    split = context.input_pipeline_id
    CALLS.append(split)
    number = lambda x: x * factor + split
    data = tf.data.Dataset.range(20)
    return data.map(lambda x: tf.ensure_shape(tf.numpy_function(number, [x], tf.int64), []))

def interleaved(context):
    CALLS.append(context.input_pipeline_id)
    data = tf.data.Dataset.range(40)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id).shuffle(40)
    return data.interleave(lambda x: tf.data.Dataset.from_tensors((x,)))

def by_epoch(context):
    return rows(context).map(lambda *row: (*row, context.epoch))

def by_seed(context):
    return rows(context).map(lambda *row: (*row, context.seed))

def by_python(context):
    drawn = random.random()
    return rows(context).map(lambda *row: (*row, drawn))

def by_numpy(context):
    drawn = np.random.random()
    return rows(context).map(lambda *row: (*row, drawn))

NUMBERS = list(range(100))
SHUFFLED = True

def indexed(context):
    return Indexed(NUMBERS, SHUFFLED)

def as_list(context):
    return NUMBERS
"""


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[list[int]]:
    """Return the list of the splits for which the entry point was called."""
    with module_of(tmp_path, "splits_of_test", _CODE) as module:
        yield module.CALLS


def job_of(function: str, args: str = "") -> types_pb2.Job:
    entry = types_pb2.EntryPoint(target=f"splits_of_test:{function}", args_json=args)
    return describe(types_pb2.Job(name="any", entry_point=entry, num_splits=2, partitions=1))


def read(opener: SplitOpener, job: types_pb2.Job, epoch: int, split: int) -> list[Any]:
    return [
        tuple(np.asarray(part).tolist() for part in tf.nest.flatten(row))
        for row in opener.open(job, 0, epoch, split, 0).elements
    ]


def new_opener() -> SplitOpener:
    return SplitOpener(lambda _: b"")


def test_a_split_is_built_once_and_each_epoch_has_the_rows_of_a_new_build(calls):
    job, opener = job_of("rows"), new_opener()
    calls.clear()
    first = {
        (epoch, split): read(opener, job, epoch, split) for epoch in range(3) for split in (0, 1)
    }
    assert calls == [0, 1]
    assert first == {key: read(new_opener(), job, *key) for key in first}
    # Epochs differ in order and in augmentation. Both splits together have all rows.
    assert first[0, 0] != first[1, 0]
    assert sorted(row for row, *_ in first[2, 0] + first[2, 1]) == list(range(40))


@pytest.mark.parametrize(
    ("function", "built"),
    [("rows", [1]), ("by_closure", [0, 1, 2, 3]), ("by_epoch", [0, 1, 2, 3])],
)
def test_splits_that_were_described_are_not_built_again(calls, function, built):
    """Except for those that each epoch builds, and those that call Python."""
    entry = types_pb2.EntryPoint(target=f"splits_of_test:{function}")
    draft, opener = types_pb2.Job(entry_point=entry, num_splits=4, partitions=1), new_opener()
    job = describe(draft, keep=opener.keep)
    job.name, job.run = "given later", "run"
    calls.clear()
    kept = [read(opener, job, 0, split) for split in range(4)]
    assert sorted(set(calls)) == built
    assert kept == [read(new_opener(), job, 0, split) for split in range(4)]


def test_python_functions_are_of_one_run(calls):
    """What they do may change between two runs, and their graph does not show it."""
    job, opener = job_of("by_closure"), new_opener()
    calls.clear()
    for job.run in ("first", "first", "second", "second"):
        read(opener, job, 0, 0)
    assert calls == [0, 0]


@pytest.mark.parametrize("function", ["by_epoch", "by_seed", "by_python", "by_numpy"])
def test_a_dataset_that_depends_on_the_epoch_is_built_for_each_epoch(calls, function):
    job, opener = job_of(function), new_opener()
    calls.clear()
    values = [{row[3] for row in read(opener, job, epoch, 0)} for epoch in (0, 1, 0)]
    # Each time once more, to compare it with the job's definitions.
    assert calls == [0, 0, 0, 0, 0, 0]
    assert values[0] == values[2] != values[1]


@pytest.mark.slow
def test_splits_share_large_arrays(calls, tmp_path):
    large = job_of("rows", '{"size": 5000000}')
    folder = tmp_path / "arrays"
    folder.mkdir()
    opener = SplitOpener(lambda _: b"", folder=folder)
    expected = read(new_opener(), large, 0, 1), read(new_opener(), large, 1, 1)
    calls.clear()
    read(opener, large, 0, 0)  # no other split is known to have the array
    assert (read(opener, large, 0, 1), read(opener, large, 1, 1)) == expected
    assert calls == [0, 1]
    (file,) = folder.iterdir()
    file.unlink()
    assert read(opener, large, 1, 1) == expected[1]
    assert calls == [0, 1, 1], "the file was lost"


def test_large_graphs_are_not_cached_and_the_cache_is_bounded(calls, monkeypatch):
    job, opener = job_of("rows"), new_opener()
    monkeypatch.setattr(split_opener, "_MAX_GRAPH_BYTES", 1)
    calls.clear()
    read(opener, job, 0, 0)
    read(opener, job, 1, 0)
    assert calls == [0, 0]
    calls.clear()
    opener.sources(job, 0, 0, 0)
    assert calls == [0]
    calls.clear()
    monkeypatch.undo()
    monkeypatch.setattr(split_opener, "_MAX_BYTES", 1)
    opener = new_opener()
    for split in (0, 0, 1, 0):
        read(opener, job, 0, split)
    assert calls == [0, 1, 0]


def test_another_seed_or_job_does_not_use_a_cached_graph(calls):
    job, opener = job_of("rows"), new_opener()
    read(opener, job, 0, 0)
    calls.clear()
    list(opener.open(job, 1, 0, 0, 0).elements)
    read(opener, job_of("rows", '{"size": 2}'), 0, 0)
    assert calls.count(0) >= 2


def test_a_split_has_the_cpus_of_the_worker(calls, monkeypatch):
    found = []
    iterate = split_opener.iterate_dataset

    def record(*args: Any) -> SplitIterator:
        found.append(args[7])
        return iterate(*args)

    monkeypatch.setattr(split_opener, "iterate_dataset", record)
    opener = SplitOpener(lambda _: b"", cpus=5)
    read(opener, job_of("rows"), 0, 0)
    assert found == [5]


@pytest.mark.parametrize(("skipped", "found"), [(14, 14), (0, 0)])
def test_skipped_rows_are_not_computed(calls, skipped, found):
    def rows_in(elements: Any) -> list[Any]:
        parts = ([part.numpy().tolist() for part in each] for each in elements)
        return [row for each in parts for row in zip(*each, strict=True)]

    job = job_of("python")
    whole = rows_in(new_opener().open(job, 0, 3, 1, 6).elements)
    calls.clear()
    split = new_opener().open(job, 0, 3, 1, 6, skipped)
    assert split.skipped == found
    assert (split.state is None) == (found > 0)
    assert rows_in(split.elements) == whole[found:]
    assert len(calls) == len(whole) - found + 1  # and the call of the entry point


def test_only_whole_batches_are_skipped_if_they_are_padded(calls):
    split = new_opener().open(job_of("padded"), 0, 0, 1, 4, 11)
    assert split.skipped == 8
    assert new_opener().open(job_of("padded"), 0, 0, 1, 4, 3).skipped == 0


def test_a_split_that_writes_the_files_of_a_cache_skips_nothing(calls, tmp_path):
    job = job_of("cached", f'{{"path": "{tmp_path}/rows"}}')
    whole = read(new_opener(), job, 0, 0)
    assert new_opener().open(job, 1, 0, 1, 0, 7).skipped == 0
    behind = new_opener().open(job, 0, 0, 0, 0, 7)  # the cache is complete
    assert behind.skipped == 7
    assert [tuple(row) for row in behind.elements] == whole[7:]


@pytest.mark.usefixtures("calls")
def test_states_of_python_functions_belong_to_a_split_an_epoch_and_their_code() -> None:
    def key(split: int, epoch: int = 0, seed: int = 0, args: str = "") -> bytes:
        opened = new_opener().open(job_of("by_closure", args), seed, epoch, split, 0)
        assert opened.state is not None
        return opened.state.key

    same, *others = key(0), key(1), key(0, epoch=1), key(0, seed=1), key(0, args='{"factor": 3}')
    assert key(0) == same
    assert len({same, *others}) == 5


def rows_of_all(job: types_pb2.Job, epoch: int, batch_rows: int) -> list[list[tuple[int, float]]]:
    """Return the rows of all splits, which are open at the same time, by split."""
    opener = new_opener()
    splits = [
        iter(opener.open(job, 0, epoch, split, batch_rows).elements)
        for split in range(job.num_splits)
    ]
    found: list[list[tuple[int, float]]] = [[] for _ in splits]
    for elements in itertools.zip_longest(*splits):
        for rows, element in zip(found, elements, strict=True):
            if element is not None:
                rows += zip(
                    *(np.asarray(element[key]).tolist() for key in ("row", "value")), strict=True
                )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "passes"), [("records", 1), ("mapped_records", 0), ("python_records", 0)]
)
@pytest.mark.usefixtures("calls")
def test_splits_that_select_records_share_a_pass(
    monkeypatch: pytest.MonkeyPatch, function: str, passes: int
) -> None:
    """An op after the shard, or a Python function, needs a pass for each split of its own."""
    begun: list[int] = []
    batches = shared_passes.Records.batches

    def count(records: shared_passes.Records, rows: int) -> Any:
        begun.append(rows)
        return batches(records, rows)

    monkeypatch.setattr(shared_passes.Records, "batches", count)
    entry = types_pb2.EntryPoint(target=f"splits_of_test:{function}")
    job = describe(types_pb2.Job(name="any", entry_point=entry, partitions=4))
    assert (job.num_splits, job.read_amplification) == (4, 4)
    for epoch in (0, 1):
        begun.clear()
        shared = rows_of_all(job, epoch, 5)
        assert len(begun) == passes
        assert shared == rows_of_all(job, epoch, 0)  # whole elements are not shared
        assert sorted(row for rows in shared for row, _ in rows) == list(range(60))


@pytest.mark.usefixtures("calls")
def test_maps_of_a_shared_pass_stay_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """All splits wait for its rows, so it may use all CPUs."""
    found: list[bool] = []
    batches = shared_passes.Records.batches

    def look(records: shared_passes.Records, rows: int) -> Any:
        options = options_of(records._records())
        found.append(options.optimization_options.HasField("map_parallelization"))
        return batches(records, rows)

    monkeypatch.setattr(shared_passes.Records, "batches", look)
    entry = types_pb2.EntryPoint(target="splits_of_test:records")
    job = describe(types_pb2.Job(name="any", entry_point=entry, partitions=4))
    list(new_opener().open(job, 0, 0, 0, 5, inline=lambda: True).elements)
    assert found == [False]


# Datasets from the trainer run as those of entry points do.

HUGE = 10_000_000


def by_split(context: Any) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(60).shard(context.num_input_pipelines, context.input_pipeline_id)
    return rows.shuffle(HUGE).map(lambda row: (row, tf.random.uniform([])))


def plain() -> tf.data.Dataset:
    return tf.data.Dataset.range(60).shuffle(HUGE).map(lambda row: (row, row * 2))


def opened(dataset: Any, global_batch_size: int = 0) -> tuple[SplitOpener, types_pb2.Job]:
    draft = types_pb2.Job(
        name="any", num_splits=3, partitions=3, global_batch_size=global_batch_size
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DATA sharding reads all rows for each split
        job, data = export_job(draft, dataset)
    return SplitOpener(lambda _: data), job


def rows(elements: Any) -> list[Any]:
    return [tuple(np.asarray(part).tolist() for part in row) for row in elements]


@pytest.mark.parametrize("dataset", [by_split, plain()], ids=["function", "DATA"])
def test_shuffle_buffers_are_bounded_and_reported(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener, job = opened(dataset)
    assert job.split_bytes == 8 * (20 if dataset is by_split else 60)
    bounded = [rows(opener.open(job, 1, 0, split, 0).elements) for split in range(3)]
    assert sorted(row for part in bounded for row, _ in part) == list(range(60))
    calls: list[Any] = []
    monkeypatch.setattr(buffers, "bound_shuffles", calls.append)
    assert rows(opener.open(job, 1, 0, 1, 0).elements) == bounded[1]
    assert len(calls) == 1


def test_a_split_makes_no_element_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    opener, job = opened(by_split)
    graphs: list[Any] = []

    def instantiate(graph_def: Any, spec: Any) -> Any:
        graphs.append(graph_def)
        return serialization.instantiate(graph_def, spec)

    fake = types.SimpleNamespace(instantiate=instantiate)
    monkeypatch.setattr(split_opener, "serialization", fake)
    found = rows(opener.open(job, 1, 0, 1, 0).elements)
    assert sorted(row for row, _ in found) == [*range(1, 60, 3)]
    assert "ShardDataset" not in {node.op for node in graphs[0].node}


def test_a_split_of_a_function_skips_rows() -> None:
    opener, job = opened(by_split)
    whole = rows(opener.open(job, 1, 2, 1, 0).elements)
    split = opener.open(job, 1, 2, 1, 0, 9)
    assert split.skipped == 9
    assert rows(split.elements) == whole[9:]


def test_the_split_of_a_data_shard_cannot_skip_rows() -> None:
    opener, job = opened(plain())
    split = opener.open(job, 1, 2, 1, 0, 9)
    assert split.skipped == 0
    assert split.state is not None
    assert split.state.problem == ""


@pytest.mark.parametrize("then", [lambda *row: row, lambda row, value: (row * 3, value)])
def test_the_last_batch_op_gets_the_rows_of_an_element(
    monkeypatch: pytest.MonkeyPatch, then: Callable[..., Any]
) -> None:
    def batched(context: Any) -> Any:
        return by_split(context).batch(2).map(then, num_parallel_calls=2).prefetch(1)

    def again(*_: Any) -> Any:
        raise AssertionError("each row would be copied once more")

    monkeypatch.setattr(batching, "batch_rows", again)
    opener, job = opened(batched, 6)
    split = opener.open(job, 1, 0, 1, 7)
    sizes = [len(first) for first, _ in split.elements]
    assert sizes == [7, 7, 6]
    other = opener.open(job, 1, 0, 1, 5)
    assert split.state is not None
    assert other.state is not None
    assert split.state.key == other.state.key


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*PIPELINES} - {"`sample_from_datasets`"}))
def test_splits_mix_rows_as_one_process_does(name: str) -> None:
    split, whole = in_splits(PIPELINES[name], 3000, 8), alone(PIPELINES[name], 3000)
    assert windows(split) > 0.9 * windows(whole)
    independent = (1 / 3 * 2 / 3 / 64) ** 0.5  # of the share of a third in 64 rows
    assert share_deviation(split) < 1.35 * max(share_deviation(whole), independent)


def test_splits_of_an_entry_point_shuffle_on_their_own(calls: list[int]) -> None:
    opener, job = new_opener(), job_of("interleaved")
    calls.clear()
    found = [[read(opener, job, epoch, split) for split in range(2)] for epoch in range(2)]
    assert sorted(calls) == [0, 1]
    orders = {tuple(x // 2 for (x,) in rows) for epoch in found for rows in epoch}
    assert len(orders) == 4


def test_splits_by_index_divide_the_rows_and_begin_at_any_of_them(calls):
    job, opener = job_of("indexed"), new_opener()
    found = [list(opener.open(job, 0, 1, split, 0).elements) for split in (0, 1)]
    assert sorted(found[0] + found[1]) == list(range(100))
    assert list(opener.open(job, 0, 1, 1, 0, 45).elements) == found[1][45:]


def test_batches_by_index_are_not_skipped(calls):
    job, opener = job_of("indexed"), new_opener()
    job.batched = True  # an anchor is a number of rows
    split = opener.open(job, 0, 1, 1, 0, 45)
    assert split.skipped == 0
    assert len(list(split.elements)) == 50


@pytest.mark.parametrize(("name", "value"), [("NUMBERS", [1, 2]), ("SHUFFLED", False)])
def test_another_number_of_rows_or_order_is_an_error(calls, monkeypatch, name, value):
    job = job_of("indexed")
    monkeypatch.setattr(sys.modules["splits_of_test"], name, value)
    with pytest.raises(JobConflictError, match="had 100 rows and version 1"):
        new_opener().open(job, 0, 0, 0, 0)


def test_an_iterable_in_place_of_an_index_is_an_error(calls):
    job = job_of("indexed")
    job.entry_point.target = "splits_of_test:as_list"
    with pytest.raises(JobConflictError, match="Now it has 0 rows"):
        new_opener().open(job, 0, 0, 0, 0)


_FILES = """
import tensorflow as tf

def ordered(context, names):
    files = tf.data.Dataset.from_tensor_slices(names)
    files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
    return files.flat_map(tf.data.TextLineDataset)

def shuffled(context, names):
    return ordered(context, names).shuffle(9)

def by_epoch(context, names):
    return ordered(context, names).skip(context.epoch)
"""


@pytest.mark.parametrize("sends", [False, True], ids=["entry point", "trainer's"])
@pytest.mark.parametrize("order", ["ordered", "shuffled"])
def test_the_sources_of_a_split_are_its_files_and_maybe_the_epoch(
    tmp_path: Path, order: str, sends: bool
) -> None:
    names = [str(tmp_path / f"{number}.txt") for number in range(6)]
    names += ["x" * (64 << 10)]  # such a list is sent apart from the graph
    args = json.dumps({"names": names})
    with module_of(tmp_path, "files_of_test", _FILES) as module:
        entry = types_pb2.EntryPoint(target=f"files_of_test:{order}", args_json=args)
        job = types_pb2.Job(name="any", entry_point=entry, num_splits=2, partitions=1)
        opener = new_opener()
        if sends:
            job.ClearField("entry_point")
            job, data = export_job(job, functools.partial(getattr(module, order), names=names))
            opener = SplitOpener(lambda _: data)
        else:
            job = describe(job)
        assert not job.varies
        for split in range(2):
            found = opener.sources(job, 0, 3, split)
            assert found.files == tuple(sorted(names[split::2]))
            assert found.epoch == (order == "shuffled")


def test_a_split_that_reads_the_epoch_has_unknown_sources(tmp_path: Path) -> None:
    with module_of(tmp_path, "files_of_test", _FILES):
        entry = types_pb2.EntryPoint(target="files_of_test:by_epoch", args_json='{"names": ["a"]}')
        job = describe(types_pb2.Job(name="any", entry_point=entry, num_splits=2, partitions=1))
        assert job.varies
        with pytest.raises(UnknownFilesError, match="reads the epoch"):
            new_opener().sources(job, 0, 0, 0)
