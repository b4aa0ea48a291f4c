"""Saved states in a folder."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.states import state_files as module
from distributed_input.worker.states.state_files import StateFiles, rows_to_drop

KEY, OTHER = b"\x01" * 16, b"\x02" * 16


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_last_state_before_a_row_is_found(tmp_path: Path) -> None:
    files = StateFiles(tmp_path / "states")
    for row in (5, 20, 100):
        files.write(KEY, row, b"%d" % row)
    files.write(OTHER, 30, b"other")
    files.flush()
    for max_row, expected in ((4, None), (5, b"5"), (99, b"20"), (1000, b"100")):
        found = files.take(KEY, max_row)
        assert (found.token if found is not None else None) == expected
        if found is not None:
            found.put_back()


def test_a_state_in_use_is_hidden_until_it_is_put_back(tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    files.write(KEY, 5, b"old")
    files.write(KEY, 20, b"new")
    files.flush()
    first = files.take(KEY, 20)
    second = StateFiles(tmp_path).take(KEY, 20)
    assert first is not None
    assert second is not None
    assert (first.token, second.token) == (b"new", b"old")
    assert files.take(KEY, 20) is None
    first.put_back()
    again = files.take(KEY, 20)
    assert again is not None
    assert again.token == b"new"
    again.remove()
    second.remove()
    assert names_in(tmp_path) == []


def test_the_oldest_files_are_removed_when_there_are_too_many(tmp_path: Path) -> None:
    files = StateFiles(tmp_path, max_bytes=30)
    began = time.time()
    for number in range(4):
        key = bytes([number]) * 16
        files.write(key, 1, b"x" * 10)
        files.flush()
        os.utime(tmp_path / f"{key.hex()}-1.state", (began - 60 + number,) * 2)
    assert [name[:2] for name in names_in(tmp_path)] == ["01", "02", "03"]


def test_old_files_are_removed(tmp_path: Path) -> None:
    files = StateFiles(tmp_path)
    files.write(KEY, 1, b"old")
    files.flush()
    os.utime(tmp_path / f"{KEY.hex()}-1.state", (1e9, 1e9))
    (tmp_path / "broken.part").touch()
    os.utime(tmp_path / "broken.part", (1e9, 1e9))
    files.write(OTHER, 1, b"new")
    files.flush()
    assert names_in(tmp_path) == [f"{OTHER.hex()}-1.state"]


def test_a_folder_that_cannot_be_written_costs_the_states_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files = StateFiles(tmp_path / "file" / "states")
    files.write(KEY, 1, b"state")
    files.flush()
    assert files.take(KEY, 5) is None


def test_a_folder_that_does_not_respond_delays_no_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(module, "_scan", lambda _: iter([release.wait() or None][1:]))
    monkeypatch.setattr(module, "_READ_SECONDS", 0.01)
    files = StateFiles(tmp_path)
    for row in range(1, 20):
        files.write(KEY, row, b"state")
    assert files.take(KEY, 50) is None
    release.set()
    files.flush()
    assert len(names_in(tmp_path)) < 19


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_the_distance_to_a_state_grows_with_its_age(gaps: list[int]) -> None:
    written: list[int] = []
    kept: list[int] = []
    for gap in gaps:
        row = (written[-1] if written else 0) + gap
        written.append(row)
        kept.append(row)
        kept = [one for one in kept if one not in rows_to_drop(kept)]
        assert kept[-1] == row
        assert kept[0] == written[0]
    newest = written[-1]
    for position in range(written[0], newest + 1):
        best = max(row for row in written if row <= position)
        found = max(row for row in kept if row <= position)
        assert found == best or position - found <= module._MAX_GAP * (newest - position)


@pytest.mark.slow
def test_few_states_of_a_long_split_are_kept() -> None:
    kept: list[int] = []
    for row in range(1, 3000):
        kept.append(row)
        kept = [one for one in kept if one not in rows_to_drop(kept)]
    assert 10 < len(kept) < 80
