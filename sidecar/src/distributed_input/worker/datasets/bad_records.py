"""Decides which errors are those of a record, and keeps the list of records that were left out.

A record may be left out only if its error depends on its content alone. Every worker then leaves
out the same records, so a split without them is still a function of (dataset, seed, epoch, split).
Only errors that are known to be of this kind count. Others, such as those of storage, are raised.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError, as_utf8
from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import dataset_name, key_of, skipped_text
from distributed_input.runtime import logs

_log = logs.get("worker.bad_records")
_PYTHON = frozenset(
    "ValueError TypeError LookupError KeyError IndexError ArithmeticError ZeroDivisionError"
    " OverflowError FloatingPointError AssertionError EOFError UnicodeError UnicodeDecodeError"
    " JSONDecodeError BadGzipFile BadZipFile LZMAError UnidentifiedImageError"
    " DecompressionBombError struct.error zlib.error binascii.Error csv.Error".split()
)
"""Python exceptions of a record. OSError is none, but some that inherit from it are."""
_FILE_ERRORS = frozenset(["BadGzipFile", "UnidentifiedImageError"])
_NAMED_ERROR = "error"  # of zlib and struct; TensorFlow's message has no module
_PLACE = re.compile(
    r"\{\{function_node [^}]*\}\} |"
    r"Error in user-defined function passed to \S+ transformation with iterator: \S+: "
)
_CLASS = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)(?::|$)")
_MAX_TEXT = 240
_FREE = 10  # records that the share does not count
_SHOWN = 80  # bytes of a record
_MAX_KEPT = 2000  # records
_NEW, _REPEATED = 100, 20  # records in a heartbeat
_EXCLUDED = "excluded by spec.badRecords.exclude"


def is_of_record(error: BaseException) -> bool:
    """Return whether an error is known to depend on the content of a record alone."""
    if isinstance(error, tf.errors.InvalidArgumentError | tf.errors.DataLossError):
        return True
    if isinstance(error, tf.errors.UnknownError):  # of a Python function
        found = _CLASS.match(_without_place(error.message))
        name = found.group(1).rpartition(".")[2] if found is not None else ""
        return name in _PYTHON or name == _NAMED_ERROR
    if isinstance(error, tf.errors.OpError):
        return False
    names = [_full_name(one) for one in type(error).__mro__]
    if "OSError" in names:
        return not _FILE_ERRORS.isdisjoint(names)
    return not _PYTHON.isdisjoint(names)


def _full_name(kind: type) -> str:
    is_unclear = kind.__name__ in ("error", "Error")
    return f"{kind.__module__}.{kind.__name__}" if is_unclear else kind.__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error, with the class of a Python exception."""
    if isinstance(error, tf.errors.OpError):
        text = _without_place(error.message)
    else:
        text = f"{type(error).__name__}: {error}"
    return _shortened(text.partition("\n")[0])


def _without_place(text: str) -> str:
    return _PLACE.sub("", text)


def _shortened(text: str) -> str:
    text = as_utf8(text)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


class SkippedRecords:
    """The records that the splits of this worker left out. Thread-safe.

    Args:
        wake: set if the dispatcher must get a report at once; None: nothing sends reports.
    """

    def __init__(self, wake: threading.Event | None = None) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._records: dict[tuple[object, ...], types_pb2.SkippedRecord] = {}
        self._unsent: dict[tuple[object, ...], types_pb2.SkippedRecord] = {}
        self._repeated: Iterator[types_pb2.SkippedRecord] = iter(())

    def add(self, record: types_pb2.SkippedRecord) -> None:
        """Add a record, unless the same one is there."""
        key = key_of(record)
        with self._changed:
            if key in self._records:
                return
            while len(self._records) >= _MAX_KEPT:
                self._records.pop(next(iter(self._records)))
            self._records[key] = self._unsent[key] = record
        _log.warning("record left out", detail=skipped_text(record))

    def report(self) -> list[types_pb2.SkippedRecord]:
        """Return records for a report: some that were not sent, and in turn those that were.

        A dispatcher that has restarted gets all of them after some reports.
        """
        with self._changed:
            unsent = list(islice(self._unsent.values(), _NEW))
            repeated = list(islice(self._repeated, _REPEATED))
            if not repeated:
                self._repeated = iter(list(self._records.values()))
            return [*unsent, *repeated]

    def confirm(self, records: Iterable[types_pb2.SkippedRecord]) -> None:
        """Record that the dispatcher has received a report."""
        with self._changed:
            for record in records:
                self._unsent.pop(key_of(record), None)
            if self._unsent and self._wake is not None:
                self._wake.set()
            self._changed.notify_all()

    def wait_sent(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the dispatcher to get all records.

        Return whether it has all. A split that has ended does not run again. If the worker died
        then, the records that were not sent would be missing from the list.
        """
        with self._changed:
            if self._wake is None or not self._unsent:
                return True
            self._wake.set()
            return self._changed.wait_for(lambda: not self._unsent, timeout)


class SplitErrors:
    """The records that one pass over a split leaves out.

    Args:
        job: the job, which has `bad_records`.
        epoch: index of the epoch.
        split: index of the split.
        skipped: gets the records.

    Attributes:
        excluded: the records of the split that are left out without reading them.
    """

    def __init__(self, job: types_pb2.Job, epoch: int, split: int, skipped: SkippedRecords) -> None:
        self._job, self._epoch, self._split, self._skipped = job, epoch, split, skipped
        self._lock = threading.Lock()  # a parallel map fails in several threads
        self._found: set[tuple[str, str, int]] = set()
        self._last: dict[tuple[str, str], int] = {}
        self.excluded = [
            one
            for one in job.bad_records.excluded
            if (not one.HasField("epoch") or one.epoch == epoch)
            and (not one.HasField("split") or one.split == split)
        ]

    def indexes(self, step: str) -> list[int]:
        """Return the indexes at which a step may have excluded records, in order."""
        return sorted({one.index for one in self.excluded if one.step == step})

    def exclude(
        self,
        step: str,
        index: int,
        strings: Sequence[bytes] = (),
        sources: int = 0,
        is_shared: bool = False,
    ) -> bool:
        """Return whether a record is excluded. Then it is left out; see `skip`."""
        files = {one.file for one in self.excluded if (one.step, one.index) == (step, index)}
        if not files:
            return False
        record = self._record(_EXCLUDED, step, index, strings, sources, is_shared)
        if files.isdisjoint(["", record.file]):
            return False
        self._skipped.add(record)
        return True

    def skip(
        self,
        error: BaseException,
        step: str,
        index: int,
        strings: Sequence[bytes] = (),
        sources: int = 0,
        is_shared: bool = False,
    ) -> None:
        """Leave out a record.

        Args:
            error: its error.
            step: name of the function or the reader that failed.
            index: index of the record in the input of the step.
            strings: strings that may name the file, then those of the record.
            sources: number of the first ones.
            is_shared: whether all splits compute the record.

        Raises:
            BaseException: `error`, if it is not known to be of the record, or the job leaves out
                no records that fail.
            DatasetFnError: the split leaves out more than the job allows.
        """
        if self.exclude(step, index, strings, sources, is_shared):
            return
        if not self._job.bad_records.per_split or not is_of_record(error):
            raise error
        record = self._record(first_line(error), step, index, strings, sources, is_shared)
        self._check_limits(record)
        self._skipped.add(record)

    def _record(
        self,
        error: str,
        step: str,
        index: int,
        strings: Sequence[bytes],
        sources: int,
        is_shared: bool,
    ) -> types_pb2.SkippedRecord:
        files, texts = strings[:sources], strings[sources:]
        file = next((text for one in files if (text := _text(one, _MAX_TEXT))), "")
        return types_pb2.SkippedRecord(
            dataset=dataset_name(self._job),
            first_run=self._job.first_run,
            epoch=self._epoch,
            split=-1 if is_shared else self._split,
            step=step,
            index=index,
            file=file,
            record=next((text for one in texts if (text := _text(one, _SHOWN))), ""),
            error=error,
        )

    def _check_limits(self, record: types_pb2.SkippedRecord) -> None:
        with self._lock:
            of = record.step, record.file
            self._found.add((*of, record.index))
            self._last[of] = max(self._last.get(of, 0), record.index + 1)
            count, seen = len(self._found), sum(self._last.values())
        limits = self._job.bad_records
        reason = ""
        if count > limits.per_split:
            reason = f"more than {limits.per_split} records (spec.badRecords.maxPerSplit)"
        elif count > _FREE + seen * limits.percent / 100:
            reason = (
                f"{count} of its first {seen} records, more than {limits.percent} % and {_FREE} "
                "records (spec.badRecords.maxPercent)"
            )
        if reason:
            raise DatasetFnError(
                f"split {self._split} of dataset {record.dataset} cannot read {reason}. The last "
                f"one: {skipped_text(record)}. Repair the data or the function, or raise the limit"
            )


def _text(value: bytes, most: int) -> str:
    """Return the first `most` bytes of a string if people can read them, or else ""."""
    text = value[:most].decode(errors="replace").rstrip("\ufffd")
    return text if text.isprintable() and "\ufffd" not in text else ""
