"""A process that crashes leaves notes, and the next one reports the split that ended it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distributed_input.api.stalls import KILLED, STEPS
from distributed_input.runtime.files import locked_folders
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import Computed

_CRASH = """
import os, signal, sys, threading
from pathlib import Path
from distributed_input.runtime.files import locked_folders
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import Computed

def compute(split, row, then):
    with crash_notes.Note(Computed("data:rows", 2, split, "d.1")) as note:
        note.begin(row, 5)
        then()

def user():
    os.kill(os.getpid(), int(sys.argv[2]))
    threading.Event().wait()

with locked_folders.locked(Path(sys.argv[1])) as folder:
    crash_notes.enable(folder, "dispatcher:1")
    waits = threading.Event()
    other = lambda: (waits.set(), threading.Event().wait())
    threading.Thread(target=compute, args=(9, 1, other), daemon=True).start()
    waits.wait()
    compute(int(sys.argv[3]), int(sys.argv[4]), user)
"""


def crash(folder: Path, number: int, split: int = 3, row: int = 77) -> int:
    """Run a process that computes a row of a split, and is ended by a signal."""
    script = folder.parent / "user_code.py"
    script.write_text(_CRASH)
    command = [sys.executable, str(script), str(folder), *map(str, (number, split, row))]
    return subprocess.run(command, timeout=60, env={**os.environ, "PYTHONPATH": ""}).returncode


def test_the_next_process_reports_the_split_row_and_line_once(tmp_path: Path) -> None:
    parent = tmp_path / "workers"
    parent.mkdir()
    assert crash(parent / "one", 11) == -11
    assert not crash_notes.collect(parent, "dispatcher:2"), "another run"
    assert crash_notes.is_needed(parent / "one")
    (found,) = crash_notes.collect(parent, "dispatcher:1")
    assert (found.dataset, found.epoch, found.split, found.row) == ("data:rows", 2, 3, 77)
    assert (found.crash, found.first_run) == ("Segmentation fault", "d.1")
    script = re.escape(str(parent / "user_code.py"))
    assert re.fullmatch(rf"in user \({script}:\d+\)", found.at)
    assert not crash_notes.collect(parent, "dispatcher:1")
    assert not crash_notes.is_needed(parent / "one")


def test_a_process_that_was_killed_leaves_what_it_computed(tmp_path: Path) -> None:
    parent = tmp_path / "workers"
    parent.mkdir()
    assert crash(parent / "one", 9) == -9
    assert crash_notes.is_needed(parent / "one")
    found = crash_notes.collect(parent, "dispatcher:1")
    assert {(one.split, one.row, one.rows) for one in found} == {(3, 77, 5), (9, 1, 5)}
    assert {one.crash for one in found} == {KILLED}
    assert {one.at for one in found} == {"one of 2 splits that it computed"}
    assert not crash_notes.is_needed(parent / "one")


def test_a_split_that_is_computed_twice_counts_once(tmp_path: Path) -> None:
    """The stream of a consumer that has gone may still compute it."""
    parent = tmp_path / "workers"
    parent.mkdir()
    assert crash(parent / "one", 9, split=9, row=8) == -9
    (found,) = crash_notes.collect(parent, "dispatcher:1")
    assert (found.split, found.row) == (9, 8), "the newest"


def test_a_process_that_is_killed_after_it_was_asked_to_end_leaves_no_report(
    tmp_path: Path,
) -> None:
    parent = tmp_path / "workers"
    parent.mkdir()
    assert crash(parent / "one", 9) == -9
    crash_notes.expect_end(parent / "one")
    assert not crash_notes.is_needed(parent / "one")
    assert not crash_notes.collect(parent, "dispatcher:1")


def test_a_crash_in_a_description_is_reported_with_its_step(tmp_path: Path) -> None:
    parent = tmp_path / "workers"
    parent.mkdir()
    assert crash(parent / "one", 11, crash_notes.DESCRIPTION, row=0) == -11
    (found,) = crash_notes.collect(parent, "dispatcher:1")
    assert (found.dataset, found.step, found.first_run) == ("data:rows", STEPS[0], "d.1")


def test_notes_of_live_and_of_old_processes_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n"
    record = b"".join(
        crash_notes._RECORD.pack(5, 6, 1, 0.0, 0, split, b"data:rows", b"d.1")
        for split in (3, 4, 4)
    )
    with locked_folders.locked(tmp_path / "one") as folder:
        for name, content in (("run", b"a"), ("crash", text.encode()), ("computing", record)):
            (folder / name).write_bytes(content)
        assert not crash_notes.collect(tmp_path, "a"), "its process is alive"
        monkeypatch.setattr(locked_folders, "is_stale", lambda _: True)
        monkeypatch.setattr(crash_notes, "_RECENT_SECONDS", -1.0)
        assert not crash_notes.collect(tmp_path, "a"), "it is old"
        monkeypatch.setattr(crash_notes, "_RECENT_SECONDS", 60.0)
        found = crash_notes.collect(tmp_path, "a")
    assert {one.at for one in found} == {"in TensorFlow, one of 2 splits that it computed"}


def test_open_splits_have_records_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    size = crash_notes._RECORD.size * crash_notes._RECORDS
    monkeypatch.setattr(crash_notes, "_memory", memory := [bytearray(size)])

    def noted() -> set[tuple[int, int]]:
        records = map(crash_notes._Record._make, crash_notes._RECORD.iter_unpack(memory[0]))
        return {(one.split, one.row) for one in records if one.thread}

    with crash_notes.Note(Computed("data:rows", 0, 1)) as first:
        first.begin(10)
        for _ in range(crash_notes._RECORDS):
            with crash_notes.Note(Computed("data:rows", 0, 2)) as note:
                note.begin(20)
        with crash_notes.Note(Computed("data:rows", 0, 3)) as other:
            other.begin(30)
            assert noted() == {(1, 10), (3, 30)}
    assert not noted()


def test_more_splits_than_records_have_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_notes, "_memory", [bytearray(crash_notes._RECORD.size)])
    monkeypatch.setattr(crash_notes, "_free", free := [0])
    notes = [crash_notes.Note(crash_notes.Computed("", 0, 0)) for _ in range(2)]
    for note in notes:
        note.begin(1)
        note.close()
    assert free == [0]


_FORK = """
import os, signal, sys
from pathlib import Path
from distributed_input.runtime.files import locked_folders
from distributed_input.worker import crash_notes

with locked_folders.locked(Path(sys.argv[1])) as folder:
    crash_notes.enable(folder, "dispatcher:1")
    with crash_notes.Note(crash_notes.Computed("", 0, 0)) as note:
        note.begin(1)
        before = (folder / "computing").read_bytes()
        child = os.fork()
        if not child:
            note.begin(2)
            os.kill(os.getpid(), signal.SIGSEGV)
        os.waitpid(child, 0)
        print((folder / "crash").read_text(), (folder / "computing").read_bytes() == before)
"""


def test_a_forked_child_writes_no_notes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FORK, str(tmp_path / "one")]
    assert subprocess.check_output(command, text=True, timeout=60).strip() == "True"
