"""What is before a boundary is read instead of computed, and rows are those without a store.

This module is long because one module of entry points serves all tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.graph import boundaries
from distributed_input.graph.boundaries import boundary
from distributed_input.graph.export import export_job
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.stored_split import StoredSplit
from distributed_input.worker.datasets.describe import describe
from distributed_input.worker.datasets.split_opener import SplitOpener, SplitSources
from distributed_input.worker.states.split_states import SplitStates
from distributed_input.worker.store import file_versions, stored_prefixes
from distributed_input.worker.store.block_store import BlockStore
from distributed_input.worker.streams.split_runner import SplitRunner, behind
from tests.unit.distributed_input.graph.graphcases import module_of, with_policy, write_files

SECONDS = 20.0
ROWS = 30
PADDED = {"padding": 20_000}  # several blocks
_CODE = """
import numpy as np
import tensorflow as tf
import distributed_input

def records(context, folder):
    files = tf.constant([f"{folder}/part{i}.tfrecord" for i in range(4)])
    files = tf.data.Dataset.from_tensor_slices(files)
    files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
    return files.flat_map(tf.data.TFRecordDataset)

def decode(record, factor):
    number = tf.strings.to_number(tf.strings.split(record, "-"), tf.int64)
    wide = tf.range(number[1] * factor, delta=1)
    return {"record": record, "number": number, "wide": tf.RaggedTensor.from_tensor([wide])[0]}

def augment(row, noise):
    return {**row, "random": tf.random.uniform([]) * noise}

def pipeline(context, folder, factor=2, noise=1.0, fails=False, padding=0):
    weights = tf.constant(np.arange(20_000))  # a large array
    rows = records(context, folder).map(lambda one: decode(one, factor), num_parallel_calls=2)
    rows = rows.map(lambda row: {**row, "weight": tf.gather(weights, row["number"][1])})
    if fails:
        rows = rows.map(lambda row: {**row, "x": tf.debugging.assert_less(row["number"][1], 12)
            or row["number"]})
    rows = rows.apply(distributed_input.boundary())
    rows = rows.shuffle(8).map(lambda row: augment(row, noise), num_parallel_calls=2)
    rows = rows.map(lambda row: {**row, "padding": tf.zeros([padding])})
    return rows.map(lambda row: {**row, "wide": tf.reduce_sum(row["wide"])}).batch(4)

def ragged(context, folder):
    rows = records(context, folder).map(lambda one: tf.strings.bytes_split(one))
    return rows.apply(distributed_input.boundary()).shuffle(8)

def batched(context, folder):
    rows = records(context, folder).batch(4).map(lambda one: tf.strings.length(one))
    return rows.apply(distributed_input.boundary()).map(lambda one: one + 1)

def twice(context, folder):
    rows = records(context, folder).apply(distributed_input.boundary())
    return tf.data.Dataset.zip(rows, rows.map(tf.strings.length)).repeat(2)

def short(context, folder):
    return records(context, folder).apply(distributed_input.boundary()).take(5)

def shuffled(context, folder):
    return records(context, folder).shuffle(8).apply(distributed_input.boundary())

def fixed(context, folder):
    rows = records(context, folder).shuffle(8, reshuffle_each_iteration=False)
    return rows.apply(distributed_input.boundary()).shuffle(8)

def drawn(context, folder):
    rows = records(context, folder).map(lambda one: (one, tf.random.uniform([])))
    return rows.apply(distributed_input.boundary())

def python(context, folder):
    rows = records(context, folder).map(lambda one: tf.numpy_function(len, [one], tf.int64))
    return rows.map(lambda one: tf.ensure_shape(one, [])).apply(distributed_input.boundary())

def sharded(context, folder):
    files = tf.data.Dataset.from_tensor_slices([f"{folder}/part{i}.tfrecord" for i in range(4)])
    rows = files.flat_map(tf.data.TFRecordDataset).apply(distributed_input.boundary())
    return rows.shard(context.num_input_pipelines, context.input_pipeline_id).batch(4)

def shared(context, folder):
    files = tf.data.Dataset.from_tensor_slices([f"{folder}/part{i}.tfrecord" for i in range(4)])
    rows = files.flat_map(tf.data.TFRecordDataset).map(tf.strings.length)
    rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
    rows = rows.apply(distributed_input.boundary())
    return rows.batch(context.get_per_replica_batch_size(4))

def nested(context, folder):
    rows = records(context, folder)
    return rows.flat_map(
        lambda one: tf.data.Dataset.from_tensors(one).apply(distributed_input.boundary()))

def counted(context, folder):
    count = tf.Variable(0)
    rows = records(context, folder).apply(distributed_input.boundary())
    return rows.map(lambda one: (one, count.assign_add(1)))

def endless(context, folder):
    return records(context, folder).apply(distributed_input.boundary()).repeat()

def late(context, folder, most):
    rows = records(context, folder).apply(distributed_input.boundary())
    def check(row):
        with tf.control_dependencies([tf.debugging.assert_less(tf.strings.length(row), most)]):
            return tf.identity(row)
    return rows.map(check)

def windows(context, folder):
    rows = records(context, folder).window(2).apply(distributed_input.boundary())
    return rows.flat_map(lambda window: window)

def in_one_split(context, folder):
    rows = records(context, folder)
    if context.input_pipeline_id == 3 and context.epoch >= 2:
        rows = rows.map(lambda one: one + "x")
    return rows.apply(distributed_input.boundary())

def by_epoch(context, folder):
    epoch = context.epoch
    rows = records(context, folder).map(lambda one: (one, epoch))
    return rows.apply(distributed_input.boundary())
"""


class Worker:
    """A worker with a store."""

    def __init__(
        self, folder: Path, max_bytes: int = 1 << 24, store: str = "store", dataset: bytes = b""
    ) -> None:
        self.folder = folder
        self.store = BlockStore(folder / store, max_bytes)
        self.opener = opener = SplitOpener(
            lambda _: dataset, folder / "arrays", prefixes=self.store.prefixes
        )
        (folder / "arrays").mkdir(exist_ok=True)
        self.runner = SplitRunner(opener, SplitStates())

    def blocks(self, request: worker_pb2.StreamRequest) -> Iterator[RowBlock]:
        return self.runner.blocks(request, StreamCounters())

    def read(self, function: str, epoch: int = 0, split: int = 1, **args: Any) -> bytes:
        """Return the rows of a split, as bytes."""
        return self.read_from(request_of(self.folder, function, epoch, split, args))

    def read_from(self, request: worker_pb2.StreamRequest) -> bytes:
        found = rows_of(self.blocks(request))
        assert self.store.flush(SECONDS)
        return found

    @property
    def counts(self) -> tuple[int, bool, int]:
        """The number of splits that were stored, whether some were read, and those damaged."""
        counts = self.store.counts
        return counts["stored"], counts["bytes"] > 0, counts["damaged"]

    def files(self) -> list[str]:
        return sorted(path.suffix for path in (self.folder / "store").glob("*"))


def rows_of(blocks: Iterator[RowBlock]) -> bytes:
    """Return all rows, and the digests of the blocks' ends."""
    found = [block for block in blocks if block.rows or block.last]
    assert found[-1].last
    joined = [
        b"".join(bytes(part) for part in parts)
        for parts in zip(*(block.buffers for block in found if block.rows), strict=True)
    ]
    return b"|".join(joined) + b"%d" % found[-1].prefix_digest


def request_of(
    folder: Path,
    function: str,
    epoch: int = 0,
    split: int = 1,
    args: Any = None,
    partitions: int = 1,
    splits: int = 2,
) -> worker_pb2.StreamRequest:
    arguments = json.dumps({"folder": str(folder), **(args or {})})
    entry = types_pb2.EntryPoint(target=f"boundaries_of_test:{function}", args_json=arguments)
    job = types_pb2.Job(name="any", entry_point=entry, num_splits=splits, partitions=partitions)
    return worker_pb2.StreamRequest(job=describe(job), epoch=epoch, split=split)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(file_versions, "MIN_AGE_SECONDS", 0.0)
    monkeypatch.setattr(stored_prefixes, "_MEASURE_SECONDS", 0.0)
    write_files(tmp_path, [ROWS // 2] * 4)
    with module_of(tmp_path, "boundaries_of_test", _CODE):
        yield tmp_path


def computed(folder: Path, function: str, epoch: int = 0, **args: Any) -> bytes:
    """Return rows without a store."""
    opener = SplitOpener(lambda _: b"")
    request = request_of(folder, function, epoch, 1, args)
    return rows_of(SplitRunner(opener, SplitStates()).blocks(request, StreamCounters()))


@pytest.mark.parametrize("function", ["pipeline", "ragged", "batched", "fixed"])
def test_rows_are_those_without_a_store_in_all_epochs(folder: Path, function: str) -> None:
    expected = [computed(folder, function, epoch) for epoch in range(3)]
    worker = Worker(folder)
    assert worker.read(function, 0) == expected[0]
    assert worker.counts == (1, False, 0)
    assert worker.read(function, 1) == expected[1]
    assert worker.counts == (1, True, 0)
    assert (expected[0] == expected[1]) == (function == "batched")
    later = Worker(folder)
    assert later.read(function, 2) == expected[2]
    assert later.counts == (0, True, 0)
    assert later.files() == [".rows"]


def test_code_behind_the_boundary_may_change_and_code_before_it_not(folder: Path) -> None:
    Worker(folder).read("pipeline")
    behind, before, split = Worker(folder), Worker(folder), Worker(folder)
    assert behind.read("pipeline", noise=2.0) == computed(folder, "pipeline", noise=2.0)
    assert behind.counts == (0, True, 0)
    assert before.read("pipeline", factor=3) == computed(folder, "pipeline", factor=3)
    assert before.counts == (1, False, 0)
    split.read("pipeline", split=0)
    assert split.counts == (1, False, 0)


def test_a_changed_file_is_read_again(folder: Path) -> None:
    worker = Worker(folder)
    first = worker.read("pipeline")
    write_files(folder, [ROWS // 2] * 3 + [ROWS])
    assert worker.read("pipeline") == computed(folder, "pipeline") != first
    assert worker.counts == (2, False, 0)
    assert worker.read("pipeline") == computed(folder, "pipeline")
    assert worker.counts == (2, True, 0)
    assert worker.files() == [".rows"]


def test_a_file_that_changes_meanwhile_is_not_stored(folder: Path) -> None:
    worker = Worker(folder)
    blocks = worker.blocks(request_of(folder, "pipeline"))
    next(blocks)
    write_files(folder, [ROWS // 2] * 3 + [ROWS])
    list(blocks)
    assert worker.store.flush(SECONDS)
    assert worker.counts == (0, False, 0)
    assert worker.files() == []


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("shuffled", "depends on the epoch"),
        ("drawn", "depends on the epoch"),
        ("python", "whose result may change"),
        ("sharded", "has a shard behind"),
        ("shared", "share a pass"),
        ("nested", "is in a function"),
        ("by_epoch", "reads the epoch"),
        ("counted", "keep a state"),
    ],
)
def test_what_is_not_certain_is_computed(
    folder: Path, caplog: pytest.LogCaptureFixture, function: str, cause: str
) -> None:
    worker = Worker(folder)
    expected = [computed(folder, function, epoch) for epoch in range(2)]
    with caplog.at_level("INFO", "distributed_input.worker.store"):
        assert [worker.read(function, epoch) for epoch in range(2)] == expected
    assert worker.counts == (0, False, 0)
    assert worker.files() == []
    fields = [one.__dict__["fields"] for one in caplog.records if one.name.endswith("store")]
    (found,) = (one["cause"] for one in fields)
    assert cause in found


def test_a_split_that_never_ends_is_computed(folder: Path) -> None:
    worker = Worker(folder)
    opened = worker.opener.open(
        request_of(folder, "endless", partitions=2).job, 0, 0, 1, 0, may_write=True
    )
    assert opened.state is not None


def test_a_split_that_skips_records_is_computed(folder: Path) -> None:
    job = request_of(folder, "pipeline").job
    job.bad_records.per_split = 1
    opened = Worker(folder).opener.open(job, 0, 0, 1, 0, may_write=True)
    assert opened.state is not None


def test_a_graph_that_cannot_be_analyzed_is_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ValueError("an op of another release")

    monkeypatch.setattr(boundaries, "before", fail)
    worker = Worker(folder)
    assert worker.read("pipeline") == computed(folder, "pipeline")
    assert worker.files() == []


def test_large_arrays_count_by_their_content(folder: Path) -> None:
    """They are in a graph, or in files if several splits that a worker opens have them."""
    first, second = Worker(folder), Worker(folder)
    first.read("pipeline", split=0)
    first.read("pipeline", split=1)
    second.read("pipeline", split=1)
    assert (first.counts, second.counts) == ((2, False, 0), (0, True, 0))


def test_a_dataset_of_the_trainer(folder: Path) -> None:
    names = [f"{folder}/part{i}.tfrecord" for i in range(4)]
    rows = tf.data.Dataset.from_tensor_slices(names).flat_map(tf.data.TFRecordDataset)
    rows = rows.map(tf.strings.length).apply(boundary()).shuffle(8).batch(4)
    draft = types_pb2.Job(name="any", num_splits=2, partitions=1, global_batch_size=4)
    job, packed = export_job(draft, with_policy(rows, "FILE"))
    job.dataset_id = "d"
    found = []
    for epoch in (0, 1):
        request = worker_pb2.StreamRequest(job=job, epoch=epoch, split=1)
        computing = SplitRunner(SplitOpener(lambda _: packed), SplitStates())
        worker = Worker(folder, dataset=packed)
        found.append(rows_of(worker.blocks(request)))
        assert found[-1] == rows_of(computing.blocks(request, StreamCounters()))
        assert worker.store.flush(SECONDS)
        assert worker.counts == (1 - epoch, epoch > 0, 0)
    assert found[0] != found[1]


def data_file(folder: Path, name: str = "rows.data-00000-of-00001") -> Path:
    (found,) = (folder / "store").glob(f"*.rows/{name}")
    return found


@pytest.mark.parametrize(
    ("name", "how", "checked"),
    [
        ("rows.data-00000-of-00001", "flip", 16 << 20),
        ("rows.data-00000-of-00001", "flip", 0),
        ("rows.data-00000-of-00001", "cut", 0),
        ("rows.data-00000-of-00001", "missing", 0),
        ("rows.index", "flip", 0),
        ("about", "flip", 16 << 20),
        ("about", "missing", 16 << 20),
    ],
)
def test_damaged_files_are_computed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: str, checked: int
) -> None:
    monkeypatch.setattr(stored_prefixes, "_DIGEST_BYTES", checked)
    monkeypatch.setattr(stored_prefixes, "_PAUSE_SECONDS", 0.0)
    expected = [computed(folder, "pipeline", epoch) for epoch in range(2)]
    worker = Worker(folder)
    worker.read("pipeline")
    file = data_file(folder, name)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(data if how == "flip" else data[: len(data) // 2])
    assert worker.read("pipeline", 1) == expected[1]
    assert worker.counts[1:] == (False, 1)
    assert worker.read("pipeline", 0) == expected[0]  # writes, if the damage was found while rows
    assert worker.read("pipeline", 1) == expected[1]  # were sent
    assert worker.counts == (2, True, 1)


def test_damage_of_small_files_is_found_before_rows_are_sent(folder: Path) -> None:
    worker = Worker(folder)
    worker.read("pipeline")
    data = bytearray(data_file(folder).read_bytes())
    data[0] ^= 1
    data_file(folder).write_bytes(data)
    worker.opener.open(request_of(folder, "pipeline").job, 0, 0, 1, 0)
    assert worker.counts[2] == 1


@pytest.mark.parametrize("how", ["cut", "removed"])
def test_files_that_change_while_they_are_read(folder: Path, how: str) -> None:
    write_files(folder, [200] * 4)
    expected = computed(folder, "pipeline", 1, padding=20_000)
    worker = Worker(folder)
    worker.read("pipeline", padding=20_000)
    blocks = worker.blocks(request_of(folder, "pipeline", 1, 1, {"padding": 20_000}))
    found = [next(blocks)]
    if how == "cut":
        os.truncate(data_file(folder), data_file(folder).stat().st_size // 2)
    else:
        worker.store.prefixes.folder.remove(data_file(folder).parent.stem)
    assert rows_of(iter([*found, *blocks])) == expected
    assert worker.counts[2] == int(how == "cut")
    assert worker.files() == []


def test_an_error_of_the_dataset_is_raised_as_without_a_store(folder: Path) -> None:
    worker = Worker(folder)
    for _ in range(2):
        with pytest.raises(DatasetFnError, match="assert"):
            worker.read("pipeline", fails=True)
    assert worker.store.flush(SECONDS)
    assert worker.files() == []


def test_an_error_behind_the_boundary_is_not_one_of_the_files(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(folder)
    worker.read("late", most=100)
    for _ in range(2):
        with pytest.raises(DatasetFnError, match="assert"):
            worker.read("late", 1, most=3)
    assert worker.counts[2] == 0
    assert worker.files() == [".rows"]
    assert "damaged" not in caplog.text
    other = Worker(folder)
    assert other.read("late", 1, most=100) == computed(folder, "late", 1, most=100)
    assert other.counts == (0, True, 0)


def test_what_tensorflow_cannot_read_is_not_written_again_and_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_prefixes, "_PAUSE_SECONDS", 0.0)
    worker = Worker(folder)
    for epoch in range(8):
        assert worker.read("windows", epoch) == computed(folder, "windows", epoch)
    assert worker.counts[0] <= stored_prefixes._MOST_DAMAGES
    assert worker.files() == []


def test_a_split_whose_function_reads_the_epoch_is_computed(folder: Path) -> None:
    worker = Worker(folder)
    for epoch in range(4):
        request = request_of(folder, "in_one_split", epoch, 3, splits=5)
        alone = SplitRunner(SplitOpener(lambda _: b""), SplitStates())
        assert worker.read_from(request) == rows_of(alone.blocks(request, StreamCounters()))
    assert worker.counts == (0, False, 0)


@pytest.mark.parametrize("function", ["pipeline", "batched"])
def test_whole_splits_of_one_epoch_are_removed_first(folder: Path, function: str) -> None:
    """They cost little once what is before their boundary is read."""
    worker, request = Worker(folder), request_of(folder, function)

    def sources(one: worker_pb2.StreamRequest) -> SplitSources:
        return worker.opener.sources(one.job, one.seed, one.epoch, one.split)

    rows_of(worker.store.blocks(request, StreamCounters(), worker.runner.blocks, sources))
    assert worker.store.flush(SECONDS)
    seconds = {}
    for path in (folder / "store").glob("*.rows"):
        with contextlib.closing(StoredSplit(path)) as stored:
            seconds[bool(stored.about.data)] = stored.about.seconds
    assert seconds[True] > 0
    assert (seconds[False] == 0) == (function == "pipeline")


def test_branches_that_read_the_same_boundary(folder: Path) -> None:
    """TensorFlow cannot write the elements for both at the same time."""
    worker = Worker(folder)
    assert worker.read("twice") == computed(folder, "twice")
    assert worker.files() == []


def test_a_split_that_does_not_read_all_elements_is_tried_once(folder: Path) -> None:
    worker = Worker(folder)
    for _ in range(2):
        assert worker.read("short") == computed(folder, "short")
        assert worker.counts == (0, False, 0)
    assert worker.files() == []
    opened = worker.opener.open(request_of(folder, "short").job, 0, 0, 1, 0, may_write=True)
    assert opened.state is not None  # nothing is written


def test_what_is_larger_than_half_of_the_store_is_tried_once(folder: Path) -> None:
    write_files(folder, [200] * 4)
    worker = Worker(folder, 2000)
    expected = computed(folder, "pipeline", padding=20_000)
    assert worker.read("pipeline", **PADDED) == expected
    assert worker.files() == []
    opened = worker.opener.open(
        request_of(folder, "pipeline", 0, 1, PADDED).job, 0, 0, 1, 0, may_write=True
    )
    assert opened.state is not None


def test_two_that_write_the_same_elements(folder: Path) -> None:
    first, second = Worker(folder), Worker(folder)
    request = request_of(folder, "pipeline")
    both = first.blocks(request), second.blocks(request)
    found = [[next(one)] for one in both]
    expected = computed(folder, "pipeline")
    assert [rows_of(iter([*one, *rest])) for one, rest in zip(found, both, strict=True)] == [
        expected
    ] * 2
    assert first.store.flush(SECONDS)
    assert second.store.flush(SECONDS)
    assert first.counts[0] + second.counts[0] == 1
    assert first.files() == [".rows"]
    assert Worker(folder).read("pipeline") == expected


def test_a_split_that_is_resumed_reads_and_writes_nothing_new(folder: Path) -> None:
    write_files(folder, [200] * 4)
    other, whole = Worker(folder, store="other"), request_of(folder, "pipeline", 1, 1, PADDED)
    first, *rest = other.blocks(whole)
    request, expected = behind(whole, first.end_prefix), rows_of(iter(rest))
    worker = Worker(folder)
    assert worker.read_from(request) == expected
    assert worker.files() == []
    worker.read("pipeline", **PADDED)
    assert worker.read_from(request) == expected
    assert worker.counts == (1, True, 0)


def test_a_saved_state_is_restored_from_stored_elements(folder: Path) -> None:
    worker = Worker(folder)
    job = request_of(folder, "pipeline").job
    worker.read("pipeline")
    first = worker.opener.open(job, 0, 1, 1, 0)
    assert first.state is not None
    before = [next(first.elements) for _ in range(3)]
    saved = first.state.save(1 << 20, SECONDS)
    second = worker.opener.open(job, 0, 1, 1, 0)
    assert second.state is not None
    assert second.state.key == first.state.key
    second.state.restore(saved)
    rest = [str(one) for one in second.elements]
    assert rest == [str(one) for one in first.elements]
    assert len(before) == 3
    other = SplitOpener(lambda _: b"").open(job, 0, 1, 1, 0)
    assert other.state is not None
    assert other.state.key != first.state.key


_KILLED = """
import os, signal, sys
from pathlib import Path
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
from tests.unit.distributed_input.worker.store.test_stored_prefixes import Worker, request_of
blocks = Worker(folder).blocks(request_of(folder, "pipeline", 0, 1, {"padding": 20_000}))
next(blocks)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_is_killed_leaves_nothing_to_read(folder: Path) -> None:
    write_files(folder, [200] * 4)
    command = [sys.executable, "-c", _KILLED, str(folder)]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    worker = Worker(folder)
    assert worker.files() == [".part"]
    expected = computed(folder, "pipeline", **PADDED)
    assert worker.read("pipeline", **PADDED) == expected
    assert worker.counts == (1, False, 0)
    assert worker.files() == [".part", ".rows"]
    (left,) = (folder / "store").glob("*.part")
    for path in (left, *left.iterdir()):
        os.utime(path, (1, 1))
    worker.store.prefixes.folder.count(1 << 24)
    assert worker.files() == [".rows"]


def test_a_full_disk_costs_no_rows(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "store").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder / "store")]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        write_files(folder, [400] * 4)
        worker = Worker(folder)
        assert worker.read("pipeline", 0) == computed(folder, "pipeline", 0)
        assert worker.read("pipeline", 1) == computed(folder, "pipeline", 1)
        assert worker.counts == (0, False, 0)
        assert worker.files() == []
        job = request_of(folder, "pipeline").job
        assert worker.opener.open(job, 0, 0, 1, 0, may_write=True).state is not None
        assert caplog.text.count("cannot store rows") == 1
    finally:
        subprocess.run(["umount", str(folder / "store")], check=True)
