"""A description that takes long is reported with the line that it runs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import STALL_SECONDS, STEPS
from distributed_input.worker import crash_notes
from distributed_input.worker.datasets.describe import import_module
from distributed_input.worker.watched_describe import WatchedDescribe

_HANGS = """
import threading

begun, returns = threading.Event(), threading.Event()

def rows(context):
    pass

begun.set()
threading.current_thread().hangs.append(returns)
returns.wait(30)
"""


def draft(module: str, folder: Path) -> types_pb2.Job:
    entry = types_pb2.EntryPoint(target=f"{module}:rows", path=str(folder))
    return types_pb2.Job(entry_point=entry)


def test_an_import_that_hangs_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_that_hangs.py").write_text(_HANGS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    now, hangs = [0.0], list[threading.Event]()
    describe = WatchedDescribe(import_module, lambda job: job, lambda: now[0])
    thread = threading.Thread(target=describe, args=(draft("module_that_hangs", tmp_path), "me"))
    thread.hangs = hangs
    thread.start()
    try:
        while not hangs:
            thread.join(0.05)
        assert describe.stalled() == []
        now[0] = STALL_SECONDS
        (found,) = describe.stalled()
    finally:
        (returns,) = hangs
        returns.set()
        thread.join()
    assert (found.dataset, found.step, found.seconds) == ("module_that_hangs:rows", STEPS[0], 10)
    assert f"in <module> ({tmp_path}/module_that_hangs.py:11)" in found.at
    assert describe.stalled() == []


def test_the_note_of_a_crash_has_the_consumer_and_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_with_rows.py").write_text("rows = print")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(crash_notes, "_memory", memory := [bytearray(crash_notes._RECORD.size)])
    monkeypatch.setattr(crash_notes, "_free", [0])

    def describe(job: types_pb2.Job) -> types_pb2.Job:
        note = crash_notes._Record._make(crash_notes._RECORD.unpack(memory[0]))
        assert (note.thread, note.row) == (threading.get_ident(), STEPS.index("describing"))
        assert (note.split, note.run) == (crash_notes.DESCRIPTION, b"me")
        return job

    expected = draft("module_with_rows", tmp_path)
    assert WatchedDescribe(import_module, describe)(expected, "me") == expected
