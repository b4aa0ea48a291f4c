"""Stored blocks are those that would be computed, and what is not certain is computed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.store_folder import SUFFIX
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.datasets.split_opener import SplitSources
from distributed_input.worker.store import block_store, file_versions, recordings
from distributed_input.worker.store.block_store import BlockStore
from distributed_input.worker.streams.split_blocks import split_blocks
from tests.unit.distributed_input.worker.streams.blockcases import ROW, rows_in

ROWS, SECONDS = 40, 20.0


class Split:
    """A split that is computed, and its store.

    Attributes:
        shift: is added to the rows, as if files had changed.
        computed: number of rows that were computed.
        sources: what the rows depend on; an error if that is not known.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.shift, self.computed = folder / "store", 0, 0
        self.file = folder / "data"
        self.file.write_bytes(b"one")
        self.sources: SplitSources | Exception = SplitSources((str(self.file),), True)
        self.during: Callable[[int], None] = lambda row: None
        self.open()

    def open(self, max_bytes: int = 1 << 20) -> None:
        self.store = BlockStore(self.folder, max_bytes)

    def _elements(self) -> Iterator[Any]:
        for row in range(0, ROWS, 5):
            self.computed += 5
            self.during(row)
            yield {"id": np.arange(row, row + 5) + self.shift}

    def compute(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Iterator[RowBlock]:
        return split_blocks(request, SplitIterator(self._elements(), ROW, True), counters)

    def _sources(self, _: worker_pb2.StreamRequest) -> SplitSources:
        if isinstance(self.sources, Exception):
            raise self.sources
        return self.sources

    def blocks(self, request: worker_pb2.StreamRequest | None = None) -> Iterator[RowBlock]:
        request = request or request_of()
        return self.store.blocks(request, StreamCounters(), self.compute, self._sources)

    def read(self, request: worker_pb2.StreamRequest | None = None) -> tuple[list[int], int]:
        """Return the rows, and how many were computed for them."""
        before = self.computed
        found = list(self.blocks(request))
        assert self.store.flush(SECONDS)
        assert [block.last for block in found] == [False] * (len(found) - 1) + [True]
        at = found[0].first_row
        for block in found:
            assert block.first_row == at
            at = block.end_row
        return rows_in(found), self.computed - before

    @property
    def stored(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def damage(self, at: int) -> None:
        (path,) = self.stored
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)


ALL = list(range(ROWS))


def request_of(start: int = 0, **fields: Any) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(name="train", dataset_id="d", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=start, split=3)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def resumed(start: int, blocks: list[RowBlock]) -> worker_pb2.StreamRequest:
    """Return a request for the rows from `start` on that checks those before it."""
    (block,) = (one for one in blocks if one.rows and one.first_row < start <= one.end_row)
    digest = block.prefix_at(start).digest
    return request_of(start, prefix_rows=start, prefix_digest=digest, check_prefix=True)


@pytest.fixture(autouse=True)
def _old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "MIN_AGE_SECONDS", -60.0)


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return Split(tmp_path)


def test_a_split_is_computed_once(split: Split) -> None:
    assert split.read() == (ALL, ROWS)
    assert len(split.stored) == 1
    split.open()  # another process
    assert split.read() == (ALL, 0)
    assert split.store.counts == {"rows": ROWS, "bytes": 8 * ROWS}


@pytest.mark.parametrize("start", [1, 5, 17, ROWS])
def test_a_stored_split_is_read_from_any_row_on(split: Split, start: int) -> None:
    blocks = list(split.blocks())
    assert split.store.flush(SECONDS)
    request = resumed(start, blocks)
    assert split.read(request) == (ALL[start:], 0)
    first = next(iter(split.blocks(request)))
    assert (first.first_row, first.prefix_digest) == (start, request.prefix_digest)
    request.prefix_digest += 1  # the trainer had other rows
    rows, computed = split.read(request)
    assert (rows, computed) == (ALL[start:], ROWS)
    assert next(block for block in split.blocks(request) if block.rows or block.last).prefix_differs


def test_a_split_that_is_shorter_than_the_request_is_computed(split: Split) -> None:
    split.read()
    assert split.read(request_of(ROWS + 1)) == ([], ROWS)


def test_what_is_read_in_part_is_not_stored(split: Split) -> None:
    blocks = split.blocks()
    next(blocks)
    del blocks
    assert split.read(request_of(5))[0] == ALL[5:]
    assert split.stored == []


def test_a_file_that_changes_is_read_again(split: Split) -> None:
    split.read()
    split.file.write_bytes(b"others")
    split.shift = 100
    changed = [row + 100 for row in ALL]
    assert split.read() == (changed, ROWS)
    assert split.read() == (changed, 0)
    assert len(split.stored) == 1
    split.file.unlink()
    assert split.read()[1] == ROWS


def test_a_file_that_changes_meanwhile_is_not_stored(split: Split) -> None:
    def change(row: int) -> None:
        if row == 20:
            split.file.write_bytes(b"others")

    split.during = change
    split.read()
    assert split.stored == []


def test_a_young_file_is_not_stored(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "MIN_AGE_SECONDS", 60.0)
    split.read()
    assert split.stored == []


def test_rows_that_depend_on_the_epoch_are_those_of_the_epoch(split: Split) -> None:
    split.read(request_of(epoch=1))
    assert split.read(request_of(epoch=2))[1] == ROWS
    assert split.read(request_of(epoch=1))[1] == 0
    assert split.read(request_of(epoch=1, seed=1))[1] == ROWS
    assert split.read(request_of(epoch=1, split=1))[1] == ROWS


def test_other_rows_are_those_of_all_epochs(split: Split) -> None:
    split.sources = SplitSources((), False)
    split.read(request_of(epoch=1))
    assert split.read(request_of(epoch=2))[1] == 0
    assert split.read(request_of(epoch=2, seed=1))[1] == ROWS


@pytest.mark.parametrize("error", [UnknownFilesError("python"), KeyError("any")])
def test_a_dataset_of_unknown_sources_is_not_stored(split: Split, error: Exception) -> None:
    split.sources = error
    assert split.read() == (ALL, ROWS)
    split.sources = SplitSources((), True)
    split.read()
    is_final = isinstance(error, UnknownFilesError)  # each question may take long
    assert len(split.stored) == (0 if is_final else 1)


def test_the_sources_of_a_split_are_found_once(split: Split) -> None:
    found = split.sources
    split.read(request_of(epoch=1))
    split.sources = KeyError("not again")
    split.read(request_of(epoch=2))
    assert len(split.stored) == 2
    split.sources = found
    split.read(request_of(split=1))
    assert len(split.stored) == 3


def test_a_split_that_is_too_large_removes_no_others_again(split: Split) -> None:
    split.read(request_of(split=1))
    split.open(2 * 8 * ROWS)
    split.read(request_of(epoch=1))
    assert split.stored == []
    split.store._folder.max_bytes = 1 << 20
    split.read(request_of(epoch=2))
    assert split.stored == []  # it was not tried
    split.read(request_of(split=2))
    assert len(split.stored) == 1


def test_a_folder_is_no_file(split: Split, tmp_path: Path) -> None:
    split.sources = SplitSources((str(tmp_path),), True)
    split.read()
    assert split.stored == []


# Damage.


@pytest.fixture
def small_blocks(split: Split, monkeypatch: pytest.MonkeyPatch) -> Split:
    monkeypatch.setattr(recordings, "BLOCK_BYTES", 1)
    split.read()
    return split


@pytest.mark.parametrize("place", ["first", "middle", "description"])
def test_a_damaged_split_is_computed(small_blocks: Split, place: str) -> None:
    split = small_blocks
    size = split.stored[0].stat().st_size
    split.damage({"first": 0, "middle": size // 3, "description": size - 40}[place])
    assert split.read() == (ALL, ROWS)
    assert split.store.counts["damaged"] == 1
    if place == "first":
        assert split.read() == (ALL, 0)


def test_rows_behind_a_damaged_block_are_those_of_the_rows_before_it(small_blocks: Split) -> None:
    split = small_blocks
    split.damage(split.stored[0].stat().st_size // 3)
    split.shift = 100  # what is computed is something else
    with pytest.raises(UnavailableError, match="not computed again"):
        split.read()
    assert split.stored == []


def test_two_workers_that_compute_different_rows_store_nothing(split: Split) -> None:
    blocks = split.blocks()
    next(blocks)
    split.read()
    assert len(split.stored) == 1
    split.shift = 100
    list(blocks)
    assert split.store.flush(SECONDS)
    assert split.stored == []
    assert split.store.counts["stored"] == 1


# Errors of the file system.


def test_a_store_that_cannot_be_written_costs_one_warning(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(block_store._log, "warning", lambda text, **_: warnings.append(text))
    split.folder.write_text("no folder")
    for number in range(3):
        assert split.read(request_of(split=number)) == (ALL, ROWS)
    assert len(warnings) == 1
    split.folder.unlink()
    assert split.read()[1] == ROWS
    assert split.stored == []  # not at once again
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 61)
    split.read()
    assert len(split.stored) == 1


def test_a_store_that_does_not_respond_is_not_asked_again_at_once(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    split.read()
    monkeypatch.setattr(block_store, "_READ_SECONDS", 0.01)
    calls, responds = [], threading.Event()

    def hang(*_: object) -> None:
        calls.append(1)
        responds.wait(SECONDS)

    monkeypatch.setattr(split.store._folder, "open", hang)
    assert split.read(request_of(1)) == (ALL[1:], ROWS)
    assert split.read(request_of(1)) == (ALL[1:], ROWS)
    assert len(calls) == 1
    responds.set()
    for thread in threading.enumerate():
        if thread.name == "open a split":
            thread.join(SECONDS)  # else it opens a file when `open` is the real one again


@pytest.mark.parametrize("is_stored", [False, True])
def test_files_that_do_not_respond_are_asked_twice(
    split: Split, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    if is_stored:
        split.read()
    monkeypatch.setattr(block_store, "_READ_SECONDS", 0.2)
    calls, responds, now = [], threading.Event(), [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def hang(_: object) -> None:
        calls.append(1)
        responds.wait(SECONDS)

    monkeypatch.setattr(block_store, "versions", hang)
    asked = []
    for _ in range(3):
        for number in (3, 4, 3):
            assert split.read(request_of(split=number)) == (ALL, ROWS)
        asked.append(len(calls))
        now[0] += 61
    assert asked == [1, 2, 2]
    job = types_pb2.Job(name="other", dataset_id="e", row_spec=ROW.to_json())
    split.read(worker_pb2.StreamRequest(job=job))
    assert len(calls) == 3
    responds.set()


def test_blocks_are_not_larger_than_a_stream_requests(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    split.read()
    monkeypatch.setattr("distributed_input.worker.streams.split_blocks.BLOCK_BYTES", 80)
    assert [block.rows for block in split.blocks()] == [10] * 4 + [0]


def test_a_store_without_threads_is_not_read(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    split.read()

    def within(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(block_store, "within", within)
    assert split.read() == (ALL, ROWS)


def test_a_job_that_is_not_stored_is_computed(split: Split) -> None:
    request = request_of()
    request.job.infinite = True
    assert split.read(request)[1] == ROWS
    assert split.stored == []
    assert os.listdir(split.folder.parent) == ["data"]
