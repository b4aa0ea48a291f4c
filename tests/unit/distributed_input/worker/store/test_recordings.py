"""Splits are written behind delivery, completely or not at all, and never delay it."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import pytest

from distributed_input.rows.store_folder import StoreFolder
from distributed_input.worker.store import recordings
from distributed_input.worker.store.recordings import Recording, WriteQueue
from tests.unit.distributed_input.rows.test_stored_split import ABOUT, ROWS
from tests.unit.distributed_input.worker.streams.blockcases import block_of, rows_in

SECONDS = 20.0


class Store:
    def __init__(self, path: Path, max_bytes: int = 1 << 20) -> None:
        self.folder, self.queue = StoreFolder(path, max_bytes), WriteQueue()
        self.errors: list[Exception] = []

    def begin(self) -> Recording:
        return Recording(self.folder, self.queue, self.errors.append)

    def record(self, name: str = "split", is_valid: bool = True) -> Recording:
        recording = self.begin()
        for row in range(ROWS):
            recording.add(block_of(row, 1))
        recording.finish(name, ABOUT, lambda: is_valid)
        recording.drop()
        return recording

    def files(self) -> list[str]:
        assert self.queue.flush(SECONDS)
        assert self.queue.waiting == 0
        return sorted(entry.path.name for entry in self.folder.entries())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_small_blocks_are_stored_as_one(store: Store) -> None:
    store.record()
    assert store.files() == ["split.rows"]
    stored = store.folder.open("split")
    assert stored is not None
    (block,) = stored.blocks(0)
    stored.close()
    assert rows_in([block]) == list(range(ROWS))


def test_large_blocks_are_written_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "BLOCK_BYTES", block_of(0, 2).nbytes)
    store.record()
    store.files()
    stored = store.folder.open("split")
    assert stored is not None
    assert [block.rows for block in stored.blocks(0)] == [2] * (ROWS // 2)
    stored.close()


def test_a_split_that_is_dropped_or_not_valid_leaves_no_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "BLOCK_BYTES", 1)
    recording = store.begin()
    recording.add(block_of(0, 3))
    recording.drop()
    recording.add(block_of(3, 3))
    recording.finish("split", ABOUT, lambda: True)
    store.record(is_valid=False)
    assert store.files() == []


def test_a_split_without_rows_is_stored(store: Store) -> None:
    store.begin().finish("split", ABOUT._replace(rows=0), lambda: True)
    assert store.files() == ["split.rows"]


def test_a_slow_disk_drops_splits_and_delays_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "MOST_WAITING", block_of(0, ROWS).nbytes)
    may_write = threading.Event()
    store.queue.put(functools.partial(_wait, may_write))
    store.record("first")
    store.record("second")
    may_write.set()
    assert store.files() == ["first.rows"]
    store.record("third")
    assert store.files() == ["first.rows", "third.rows"]


def _wait(event: threading.Event) -> None:
    assert event.wait(SECONDS)


def test_few_bytes_are_written_early_if_many_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "MOST_WAITING", block_of(0, 8).nbytes)
    others = store.begin()
    others.add(block_of(0, 4))
    recording = store.begin()
    for row in range(ROWS):  # more than the rest
        recording.add(block_of(row, 1))
        assert store.queue.flush(SECONDS)
    recording.finish("split", ABOUT, lambda: True)
    others.drop()
    assert store.files() == ["split.rows"]


def test_an_error_of_the_disk_is_reported_once_for_a_split(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "BLOCK_BYTES", 1)
    full = OSError("no space left on device")

    def write(*_: object) -> None:
        raise full

    monkeypatch.setattr(recordings.SplitFile, "write", write)
    store.record()
    assert store.files() == []
    assert store.errors == [full]


def test_no_error_ends_the_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "BLOCK_BYTES", 1)

    def fail(*_: object) -> None:
        raise OSError("stale file handle")

    recording = store.begin()
    recording.add(block_of(0, 3))
    with monkeypatch.context() as broken:
        broken.setattr(recordings.SplitFile, "close", fail)
        recording.drop()
        assert store.files() == []
    assert store.folder.unfinished == 0
    store.queue.admit(5)
    store.queue.put(functools.partial(_raise, KeyError("any")), 5)
    store.begin().finish("invalid", ABOUT, functools.partial(_raise, KeyError("any")))
    assert store.files() == []
    assert [type(error) for error in store.errors] == [KeyError]
    store.record()
    assert store.files() == ["split.rows"]


def _raise(error: Exception) -> Any:
    raise error


def test_a_split_of_half_the_folder_is_not_stored(tmp_path: Path) -> None:
    store = Store(tmp_path, 2 * block_of(0, ROWS).nbytes)
    store.record()
    assert store.files() == []
    assert [type(error) for error in store.errors] == [recordings.TooLargeError]
    assert store.folder.unfinished == 0


def test_splits_that_take_half_the_folder_together_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "BLOCK_BYTES", 1)
    store = Store(tmp_path, 5 * block_of(0, ROWS).nbytes)
    others = [store.begin() for _ in range(3)]
    for recording in others:
        recording.add(block_of(0, ROWS))
    assert len(store.files()) < 3
    assert store.errors == []  # each is small enough
    for recording in others:
        recording.drop()
    store.files()
