"""Runs splits: from a request to blocks, from the first row of the split or from a saved state."""

from __future__ import annotations

from collections.abc import Generator

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import Computed
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.datasets.split_opener import SplitOpener
from distributed_input.worker.states.saved_state import SavedState, StateError
from distributed_input.worker.states.split_states import SplitStates
from distributed_input.worker.streams.batch_sizer import BatchSizer, measure_rate
from distributed_input.worker.streams.split_blocks import (
    block_bytes,
    progress_report,
    split_blocks,
)

_FIRST_RATE_SECONDS = 0.5  # of the time that a split has taken


class SplitRunner:
    """Produces the blocks of splits.

    Args:
        splits: opens splits.
        states: saved states of splits.
    """

    def __init__(self, splits: SplitOpener, states: SplitStates) -> None:
        self._splits = splits
        self._states = states
        self._batch_sizer = BatchSizer()

    def blocks(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Generator[RowBlock, None, None]:
        """Yield a split's blocks. The first one also builds the dataset, lists its files and fills
        its shuffle buffers. The caller acquires a core for each whole block: with a shorter time,
        waking the threads costs more than the work.

        If a saved state cannot be used, the split is replayed from its first row.
        """
        stored, state = None, self._states.find(request)
        request.ClearField("resume_token")  # it may be large
        if state is None and self._states.uses_files(request):
            opened = self._open_with(request, self._element_rows(request))
            if opened.state is not None:
                stored, state = self._states.take_file(request, opened.state.key)
        if state is not None:
            has_rows = False
            # If the state ends this process, the sidecar learns that it was in use.
            yield progress_report(state.prefix.rows)
            try:
                elements = self._restore(request, state)
                rest = self._run(request, counters, elements, state.batch_rows, state.prefix)
                for block in rest:
                    if not has_rows and (block.rows or block.last):
                        has_rows = True
                        if stored is not None:
                            stored.put_back()
                    yield block
                return
            except Exception as error:
                if has_rows:
                    raise
                if stored is not None:
                    stored.remove()
                self._states.refuse(request, error)
        elements, batch_rows = self._open(request)
        yield from self._run(request, counters, elements, batch_rows, Prefix())

    def _run(
        self,
        request: worker_pb2.StreamRequest,
        counters: StreamCounters,
        elements: SplitIterator,
        batch_rows: int,
        start: Prefix,
    ) -> Generator[RowBlock, None, None]:
        saver = self._states.saver(request, elements.state, batch_rows)
        recorded = _FIRST_RATE_SECONDS
        for block in split_blocks(request, elements, counters, start, saver):
            if counters.busy_seconds >= recorded or (block.last and counters.busy_seconds):
                rate = counters.rows / counters.busy_seconds
                self._batch_sizer.record_rate(request.job, rate)
                if counters.rows:
                    mean = counters.bytes / counters.rows
                    self._batch_sizer.record_row_bytes(request.job, mean)
                recorded = 2 * counters.busy_seconds
            yield block

    def _restore(self, request: worker_pb2.StreamRequest, state: SavedState) -> SplitIterator:
        """Return the split behind the rows of a saved state.

        Raises:
            StateError: the state is of another split, or TensorFlow cannot use it.
        """
        elements = self._open_with(request, state.batch_rows)
        if elements.state is None or elements.state.key != state.key:
            raise StateError("it belongs to another dataset, split or version of TensorFlow")
        elements.state.restore(state.data, state.prefix.rows)
        self._states.record_restore(request, state)
        return elements

    def _open(self, request: worker_pb2.StreamRequest) -> tuple[SplitIterator, int]:
        """Return the split from its first row, and the rows in an element.

        This number suits the dataset's rate. 0: the elements stay as they are.
        """
        rows = self._element_rows(request)
        elements = self._open_with(request, rows)
        if elements.from_python:
            return elements, 0
        self._batch_sizer.record_calls(request.job, elements.parallel_calls)
        better = self._element_rows(request)
        if better != rows:
            rows, elements = better, self._open_with(request, better)
        if rows and not self._batch_sizer.has_rate(request.job):
            elements, rate = measure_rate(elements, rows, request.job.infinite)
            if rate is not None:
                self._batch_sizer.record_rate(request.job, rate)
                better = self._element_rows(request)
                if better != rows:
                    rows, elements = better, self._open_with(request, better)
        return elements, rows

    def _element_rows(self, request: worker_pb2.StreamRequest) -> int:
        return self._batch_sizer.rows(request.job, block_bytes(request))

    def _open_with(self, request: worker_pb2.StreamRequest, rows: int) -> SplitIterator:
        of = Computed.of(request.job, request.epoch, request.split)
        with crash_notes.Note(of) as note:
            note.begin(0)
            return self._splits.open(request.job, request.seed, request.epoch, request.split, rows)
