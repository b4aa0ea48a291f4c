"""What a worker computes, in a file that outlives it, so that the next process can report a crash.

A fatal signal, such as SIGSEGV in a library, ends the process between two instructions. So it notes
beforehand which thread computes which row, and `faulthandler` adds the thread and the line. The
files are in the worker's locked folder. Its parent stays when a container starts again.

SIGKILL, which the kernel sends if memory is short, leaves the notes without a thread and a line. It
may also come from outside, so readers of these reports must see it several times at the same row.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import re
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import IN_TENSORFLOW, KILLED, STEPS, dataset_name
from distributed_input.runtime import logs
from distributed_input.runtime.files import locked_folders

_log = logs.get("worker.crashes")
_RECORD = struct.Struct("<QQQdQq256p128p")  # the fields of `_Record`
_ROW = struct.Struct("<QQQd")  # the first four
_RECORDS = 1024  # splits that are open at the same time; others have no notes
_RECENT_SECONDS = 300.0  # older crashes belong to another run
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_CURRENT = re.compile(r"^Current thread 0x([0-9a-f]+).*\n((?:  .*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (\S+)', re.MULTILINE)

_memory: list[mmap.mmap] = []  # one, once it is enabled
_free = [index * _RECORD.size for index in range(_RECORDS)]  # starts of unused records


DESCRIPTION = -1
"""In place of a split: the description of a dataset. Its rows are its steps, see `STEPS`."""


class Computed(NamedTuple):
    """What a thread computes."""

    dataset: str
    epoch: int
    split: int
    first_run: str = ""

    @classmethod
    def of(cls, job: types_pb2.Job, epoch: int, split: int) -> Computed:
        """Return a split of a job."""
        return cls(dataset_name(job), epoch, split, job.first_run)


class _Record(NamedTuple):
    """What a thread of a dead process computed. See `Note.begin`."""

    thread: int  # 0: none
    row: int
    rows: int
    began: float
    epoch: int
    split: int
    dataset: bytes
    run: bytes


def enable(folder: Path, run: str) -> None:
    """Write notes of this process to a folder, for `collect`.

    Args:
        folder: the process's locked folder.
        run: what the worker belongs to: the address of the dispatcher.
    """
    with (folder / "computing").open("w+b") as file:
        file.truncate(_RECORD.size * _RECORDS)
        _memory[:] = [mmap.mmap(file.fileno(), _RECORD.size * _RECORDS)]
    (folder / "run").write_text(run, errors="surrogateescape")
    # It stays open: faulthandler writes to its descriptor.
    faulthandler.enable(os.open(folder / "crash", os.O_WRONLY | os.O_CREAT, 0o600))
    # A child is another process, but it would write to these files.
    os.register_at_fork(after_in_child=_disable)


def expect_end(folder: Path) -> None:
    """Note that this process has been asked to end: if it is killed from now on, no row did it."""
    (folder / "computing").unlink(missing_ok=True)


def _disable() -> None:
    faulthandler.disable()
    _memory.clear()


class Note:
    """The note about what computes a split. Use it as a context, or close it at the end."""

    def __init__(self, what: Computed) -> None:
        self._start: int | None = None
        if _memory:
            with contextlib.suppress(IndexError):
                self._start = _free.pop()
        if self._start is not None:
            dataset = what.dataset.encode(errors="surrogateescape")
            run = what.first_run.encode(errors="surrogateescape")
            record = _Record(0, 0, 0, 0.0, what.epoch, what.split, dataset, run)
            _RECORD.pack_into(_memory[0], self._start, *record)

    def begin(self, row: int, rows: int = 0) -> None:
        """Note that this thread computes rows, until `end`.

        Args:
            row: index of the first row.
            rows: number of rows; 0: unknown.
        """
        if self._start is not None and _memory:
            note = threading.get_ident(), row, rows, time.time()
            _ROW.pack_into(_memory[0], self._start, *note)

    def end(self) -> None:
        """Note that no thread computes a row."""
        if self._start is not None and _memory:
            _ROW.pack_into(_memory[0], self._start, 0, 0, 0, 0.0)

    def close(self) -> None:
        """Leave the record to another split."""
        self.end()
        if self._start is not None:
            _free.append(self._start)
            self._start = None

    def __enter__(self) -> Note:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def collect(parent: Path, run: str) -> list[types_pb2.StalledSplit]:
    """Return the splits that ended other processes of a run, and remove the notes about them.

    Args:
        parent: folder of the workers' locked folders.
        run: see `enable`.
    """
    found: list[types_pb2.StalledSplit] = []
    for file in parent.glob("*/crash"):
        with contextlib.suppress(OSError):
            of_run = (file.parent / "run").read_text(errors="surrogateescape") == run
            if of_run and locked_folders.is_stale(file.parent) and is_needed(file.parent):
                text, running = file.read_text(errors="replace"), _running(file.parent)
                # Another process takes it first, or removes the folder after this.
                file.rename(file.with_name("reported"))
                found += _crashes(text, running)
    return found


def is_needed(folder: Path) -> bool:
    """Return whether the next process of a dead one's run may still `collect` its notes."""
    with contextlib.suppress(OSError):
        crash = (folder / "crash").stat()
        began = (one.began for one in _running(folder))
        noted = crash.st_mtime if crash.st_size else max(began, default=0.0)
        return time.time() - noted < _RECENT_SECONDS
    return False


def _running(folder: Path) -> list[_Record]:
    computing = (folder / "computing").read_bytes()
    records = (_Record(*one) for one in _RECORD.iter_unpack(computing))
    return [one for one in records if one.thread]


def _crashes(text: str, running: Sequence[_Record]) -> list[types_pb2.StalledSplit]:
    fatal = _FATAL.search(text)
    if fatal is None:
        splits = _one_per_split(running)
        return [_crash(KILLED, "", len(splits), one) for one in splits]
    _log.error("a worker crashed", traceback=text.strip())
    current = _CURRENT.search(text)  # None: a thread without Python code crashed
    ident, stack = (int(current[1], 16), current[2]) if current else (0, "")
    # Without a match, a thread of TensorFlow crashed, for one of the splits.
    guilty = _one_per_split([one for one in running if one.thread == ident] or running)
    return [_crash(fatal[1], _place(stack), len(guilty), one) for one in guilty]


def _one_per_split(running: Sequence[_Record]) -> Sequence[_Record]:
    """Return the newest record of each split, as a split counts once for each process.

    A split has two while the stream of a consumer that has gone still computes it.
    """
    newest = sorted(running, key=lambda one: one.began)
    return [*{(one.run, one.dataset, one.epoch, one.split): one for one in newest}.values()]


def _crash(fatal: str, place: str, count: int, one: _Record) -> types_pb2.StalledSplit:
    others = f"one of {count} splits that it computed" if count > 1 else ""
    crash = types_pb2.StalledSplit(
        dataset=one.dataset.decode(errors="replace"),
        epoch=one.epoch,
        row=one.row,
        rows=one.rows,
        at=", ".join(filter(None, (place, others))),
        crash=fatal,
        first_run=one.run.decode(errors="replace"),
    )
    if one.split == DESCRIPTION:
        crash.step = STEPS[one.row]
    else:
        crash.split = one.split
    return crash


def _place(stack: str) -> str:
    """Return the innermost line of the user in a stack."""
    from distributed_input.graph.user_code import is_library  # imports TensorFlow

    frames: list[tuple[str, str, str]] = _FRAME.findall(stack)
    users = (one for one in frames if not is_library(one[0]))
    return next((f"in {name} ({file}:{line})" for file, line, name in users), IN_TENSORFLOW)
