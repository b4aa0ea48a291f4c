"""Runs splits: from a request to blocks.

A split begins at its first row, at a saved state, or at the anchor of the request.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import Computed
from distributed_input.worker.datasets.bad_records import (
    SkippedRecords,
    SplitErrors,
    is_of_record,
)
from distributed_input.worker.datasets.boundary_files import BoundaryError
from distributed_input.worker.datasets.record_checks import READER
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.datasets.split_opener import (
    INDEXED,
    RecordGuards,
    SplitOpener,
    SplitSources,
)
from distributed_input.worker.states.saved_state import SavedState, StateError, within
from distributed_input.worker.states.split_states import SplitStates, is_anchored
from distributed_input.worker.states.state_files import StoredState
from distributed_input.worker.streams.batch_sizer import BatchSizer, measure_rate
from distributed_input.worker.streams.running_split import is_python
from distributed_input.worker.streams.split_blocks import (
    block_bytes,
    progress_report,
    split_blocks,
)

_FIRST_RATE_SECONDS = 0.5  # of the time that a split has taken
NO_GUARD = (
    "spec.badRecords cannot skip this: it was not raised by a map of single records. Parse and"
    " decode in `map`, before `batch`"
)
NO_GRAPH = (
    "spec.badRecords cannot skip this: a Python iterable does not continue after an error. Catch"
    " the error in it, decode in `Dataset.map` with numpy_function, or return a dataset with"
    " `__getitem__`"
)
NO_INDEX = (
    "the records of a Python iterable have no index. Leave them out in the function, or return a"
    " dataset with `__getitem__`"
)
_REPORT_SECONDS = 5.0  # for what the dispatcher gets before a split ends
_SKIP_SECONDS = 20.0  # nothing is reported meanwhile. A replay takes longer, but reports


@dataclass(frozen=True)
class _Opened:
    """An open split.

    Attributes:
        elements: its elements from a row on.
        batch_rows: rows in an element for which it was opened; 0: the elements stay as they are.
        start: the rows before `elements`.
        included: number of rows of `elements` that the digest of `start` has already.
    """

    elements: SplitIterator
    batch_rows: int
    start: Prefix = field(default_factory=Prefix)
    included: int = 0


class SplitRunner:
    """Produces the blocks of splits.

    Args:
        splits: opens splits.
        states: saved states of splits.
        is_crowded: returns whether more splits compute rows than the worker has CPUs.
        skipped: gets the records that splits leave out.
    """

    def __init__(
        self,
        splits: SplitOpener,
        states: SplitStates,
        is_crowded: Callable[[], bool] = lambda: False,
        skipped: SkippedRecords | None = None,
    ) -> None:
        self._skipped = skipped or SkippedRecords()
        self._splits = splits
        self._states = states
        self._is_crowded = is_crowded
        self._batch_sizer = BatchSizer()

    def blocks(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Generator[RowBlock, None, None]:
        """Yield a split's blocks. The first one also builds the dataset, lists its files and fills
        its shuffle buffers. The caller acquires a core for each whole block: with a shorter time,
        waking the threads costs more than the work.

        The split continues from a saved state, or else behind the rows that the request lets it
        skip. If that fails before a row was sent, the split is replayed from its first row.

        If the job leaves out records that fail, a split with such a record is replayed without it.
        """
        guards = self._first_guards(request)
        if guards is None and not request.job.bad_records.per_split:
            yield from self._stored_blocks(request, counters)
            return
        # Rows are not elements of the maps' inputs, if some of these are left out.
        request.ClearField("anchor_rows")
        is_continued = False
        while True:
            sent: RowBlock | None = None
            try:
                for block in self._blocks(request, counters, guards):
                    if is_continued and block.prefix_differs:
                        raise UnavailableError("the split without bad records has other rows")
                    if block.last:
                        self._skipped.wait_sent(_REPORT_SECONDS)
                    sent = block if block.rows else sent
                    yield block
                return
            except DatasetFnError as error:
                following = self._guards_after(request, guards, error)
                if following is None:
                    raise
                guards = following
            if sent is not None:
                request, is_continued = behind(request, sent.end_prefix), True

    def _stored_blocks(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Generator[RowBlock, None, None]:
        """Yield a split's blocks. Compute the rest if files of its boundary cannot be used."""
        sent: RowBlock | None = None
        try:
            for block in self._blocks(request, counters):
                sent = block if block.rows else sent
                yield block
            return
        except BoundaryError:  # it is logged
            rest = behind(request, sent.end_prefix) if sent is not None else request
        for block in self._blocks(rest, counters):
            if sent is not None and block.prefix_differs:
                raise UnavailableError("stored rows that were sent are not computed again")
            yield block

    def _first_guards(self, request: worker_pb2.StreamRequest) -> RecordGuards | None:
        """Return the guards with which a split is opened first.

        Raises:
            DatasetFnError: the dataset has no such steps.
        """
        guards = self._guards(request, has_files=False)
        steps = {one.step for one in guards.errors.excluded}
        if request.job.indexed_rows:
            if steps - {INDEXED}:
                raise DatasetFnError(f"spec.badRecords.exclude: the step of a row is {INDEXED}")
            return guards if steps or request.job.bad_records.per_split else None
        if steps and is_python(request.job):
            raise DatasetFnError(f"spec.badRecords.exclude: {NO_INDEX}")
        return guards._replace(has_files=READER in steps) if steps else None

    def _guards(self, request: worker_pb2.StreamRequest, has_files: bool) -> RecordGuards:
        errors = SplitErrors(request.job, request.epoch, request.split, self._skipped)
        return RecordGuards(errors, has_files)

    def _guards_after(
        self,
        request: worker_pb2.StreamRequest,
        guards: RecordGuards | None,
        error: DatasetFnError,
    ) -> RecordGuards | None:
        """Return the guards with which a split continues after an error.

        None if it ends: the error is not that of a record, or no guard is where it was raised.
        """
        cause = error.__cause__
        if not request.job.bad_records.per_split or cause is None or not is_of_record(cause):
            return None
        is_file = isinstance(cause, tf.errors.DataLossError)
        if guards is not None and (guards.has_files or not is_file):
            raise DatasetFnError(f"{error}\n{NO_GUARD}") from cause
        if is_python(request.job):
            raise DatasetFnError(f"{error}\n{NO_GRAPH}") from cause
        return self._guards(request, has_files=is_file)

    def _blocks(
        self,
        request: worker_pb2.StreamRequest,
        counters: StreamCounters,
        guards: RecordGuards | None = None,
    ) -> Generator[RowBlock, None, None]:
        """Yield a split's blocks; see `blocks`."""
        if guards is not None:
            yield from self._run(request, counters, self._open(request, guards=guards))
            return
        stored, state = None, self._states.find(request)
        request.ClearField("resume_token")  # it may be large
        if state is None and self._states.uses_files(request):
            elements = self._open_with(request, self._element_rows(request))
            if elements.state is not None:
                stored, state = self._states.take_file(request, elements.state.key)
        if state is not None:
            # If the state ends this process, the sidecar learns that it was in use.
            yield progress_report(state.prefix.rows)
            if (yield from self._try(request, self._restore(request, counters, state), stored)):
                return
        opened = self._open_behind(request) if is_anchored(request) else self._open(request)
        if opened.start.rows:
            if (yield from self._try(request, self._run(request, counters, opened))):
                return
            opened = self._open(request)
        yield from self._run(request, counters, opened)

    def _try(
        self,
        request: worker_pb2.StreamRequest,
        blocks: Iterator[RowBlock],
        stored: StoredState | None = None,
    ) -> Generator[RowBlock, None, bool]:
        """Yield the blocks of a split. Return False after an error before its first rows."""
        has_rows = False
        try:
            for block in blocks:
                if not has_rows and (block.rows or block.last):
                    has_rows = True
                    if stored is not None:
                        stored.put_back()
                yield block
        except Exception as error:
            if has_rows:
                raise
            if stored is not None:
                stored.remove()
            self._states.refuse(request, error)
            return False
        return True

    def _run(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters, opened: _Opened
    ) -> Generator[RowBlock, None, None]:
        elements, start = opened.elements, opened.start
        saver = self._states.saver(request, elements.state, opened.batch_rows)
        recorded = _FIRST_RATE_SECONDS
        for block in split_blocks(request, elements, counters, start, saver, opened.included):
            if counters.busy_seconds >= recorded or (block.last and counters.busy_seconds):
                rate = counters.rows / counters.busy_seconds
                self._batch_sizer.record_rate(request.job, rate)
                if counters.rows:
                    mean = counters.bytes / counters.rows
                    self._batch_sizer.record_row_bytes(request.job, mean)
                recorded = 2 * counters.busy_seconds
            yield block

    def _restore(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters, state: SavedState
    ) -> Iterator[RowBlock]:
        """Yield the blocks of a split behind the rows of a saved state.

        Raises:
            StateError: the state is of another split, or TensorFlow cannot use it.
        """
        elements = self._open_with(request, state.batch_rows, inline=lambda: state.inline)
        if elements.state is None or elements.state.key != state.key:
            raise StateError("it belongs to another dataset, split or version of TensorFlow")
        elements.state.restore(state.data)
        self._states.record_restore(request, state)
        yield from self._run(request, counters, _Opened(elements, state.batch_rows, state.prefix))

    def _open_behind(self, request: worker_pb2.StreamRequest) -> _Opened:
        """Return the split behind the rows before the request's anchor, if it can skip them."""
        try:
            if is_python(request.job):  # it runs in one thread, and skips at once
                opened = self._open(request, request.anchor_rows)
            else:
                seconds, skip = _SKIP_SECONDS, functools.partial(self._open_skipped, request)
                opened = within(seconds, "skip the rows before an anchor", skip)
        except Exception as error:  # noqa: BLE001 - raised again, unless it is of the skipping
            self._states.refuse(request, error)
            return self._open(request)
        skipped = opened.elements.skipped
        if not skipped:
            return opened
        self._states.record_skip(request, skipped)
        start = Prefix(skipped, request.anchor_digest)
        return replace(opened, start=start, included=request.anchor_rows - skipped)

    def _open_skipped(self, request: worker_pb2.StreamRequest) -> _Opened:
        """Return the split behind the rows that it skips. They are skipped when this returns."""
        opened = self._open(request, request.anchor_rows)
        split = opened.elements
        if not split.skipped:
            return opened
        first = list(itertools.islice(split.elements, 1))
        elements = replace(split, elements=itertools.chain(first, split.elements))
        return replace(opened, elements=elements)

    def _open(
        self,
        request: worker_pb2.StreamRequest,
        skipped: int = 0,
        guards: RecordGuards | None = None,
    ) -> _Opened:
        """Return the split from its first row, or without `skipped` rows if it can skip rows.

        The number of rows in an element suits the dataset's rate.
        """
        rows = self._element_rows(request)
        elements = self._open_with(request, rows, skipped, guards=guards)
        if elements.from_python:
            return _Opened(elements, 0)
        if guards is not None:
            return _Opened(elements, rows)
        self._batch_sizer.record_calls(request.job, elements.parallel_calls)
        better = self._element_rows(request)
        if better != rows:
            rows, elements = better, self._open_with(request, better, skipped)
        if rows and not self._batch_sizer.has_rate(request.job):
            elements, rate, estimate = measure_rate(elements, rows, request.job.infinite)
            self._batch_sizer.record_estimate(request.job, estimate)
            if rate is not None:
                self._batch_sizer.record_rate(request.job, rate)
            better = self._element_rows(request)
            if better != rows or (elements.may_inline and self._inlines(request.job)):
                rows, elements = better, self._open_with(request, better, skipped)
        return _Opened(elements, rows)

    def _element_rows(self, request: worker_pb2.StreamRequest) -> int:
        return self._batch_sizer.rows(request.job, block_bytes(request))

    def _open_with(
        self,
        request: worker_pb2.StreamRequest,
        rows: int,
        skipped: int = 0,
        *,
        inline: Callable[[], bool] | None = None,
        guards: RecordGuards | None = None,
    ) -> SplitIterator:
        of = Computed.of(request.job, request.epoch, request.split)
        with crash_notes.Note(of) as note:
            note.begin(0)
            return self._splits.open(
                request.job,
                request.seed,
                request.epoch,
                request.split,
                rows,
                skipped,
                inline or functools.partial(self._inlines, request.job),
                guards,
                may_write=not request.start_row,  # else it needs its state, or skips rows
            )

    def sources(self, request: worker_pb2.StreamRequest) -> SplitSources:
        """Return what the rows of a split depend on; see `SplitOpener.sources`."""
        with crash_notes.Note(Computed.of(request.job, request.epoch, request.split)) as note:
            note.begin(0)
            return self._splits.sources(request.job, request.seed, request.epoch, request.split)

    def _inlines(self, job: types_pb2.Job) -> bool:
        """Return whether the maps of a split that is opened now run in its thread.

        Slow ones would save nothing. If other splits end or wait, they need all CPUs.
        """
        return self._is_crowded() and self._batch_sizer.is_quick(job)


def behind(request: worker_pb2.StreamRequest, prefix: Prefix) -> worker_pb2.StreamRequest:
    """Return the request of the rows of a split behind those that were sent."""
    rest = worker_pb2.StreamRequest()
    rest.CopyFrom(request)
    rest.start_row = rest.prefix_rows = prefix.rows
    rest.prefix_digest, rest.check_prefix = prefix.digest, True
    return rest
