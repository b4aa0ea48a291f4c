"""The rows of one split, read from the workers.

A `SplitStream` receives blocks ahead of need into a short queue of at least one block. When a
stream breaks, it opens another one at the first row not yet received, on another worker if there is
one. The worker replays the rows received so far, or those from an anchor on, and compares their
digest with the request's. The stream's credit lets the worker send what the queue has room for.

This module is long because a stream is one state machine.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from distributed_input.api.errors import (
    DatasetFnError,
    DistributedInputError,
    ReplayError,
    UnavailableError,
)
from distributed_input.api.proto import worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.api.stalls import dataset_name
from distributed_input.link.blocks.reader import SplitCall
from distributed_input.link.errors import internal_error
from distributed_input.rows.blocks import RowBlock, check_sizes
from distributed_input.rows.prefix import DIGEST_VERSION, Prefix
from distributed_input.runtime import logs
from distributed_input.sidecar.streams.row_slices import BlockSlices
from distributed_input.sidecar.streams.stream_context import StreamContext
from distributed_input.sidecar.streams.stream_retry import StreamRetry

_log = logs.get("sidecar.streams")

_SILENT_SECONDS = 5.0  # some calls to a worker that has left never end by themselves
_SUSPICIOUS_SECONDS = 0.5  # of silence: the first rows of a split take some tenths of a second
_NO_WORKER_SECONDS = 0.5
_WINDOW_BLOCKS = 2
"""Whole blocks behind an anchor, at least. A worker computes them again, and compares them. A block
takes it some hundredths of a second, or has the rows of a step."""


class SplitStream:
    """The rows of one split from `start_row` on, in order. It has no thread.

    The caller of every method holds the lock of the context, except of `receive` and `fail`, which
    the connection's thread calls.

    Args:
        context: values that the streams of the epoch share.
        split: id of the split.
        ordinal: index of the split in its partition.
        start_row: index in the split of the first row to read.
        prefix: rows before `start_row` with a known digest, or None.

    Attributes:
        total: number of rows in the whole split, or None before its end was received.
        received: index of the first row not yet received.
        opened: whether the first answer was received, so that `received` and `total` are facts.
        replayed: rows that the present worker has replayed, as far as it has reported.
        total_replayed: rows that all workers have replayed.
        advanced_at: monotonic time at which a row was last received or replayed.
        worker: id of the worker that was last asked for rows.
        failure: error that ended the last attempt, as text for people, or "".
    """

    def __init__(
        self,
        context: StreamContext,
        split: int,
        ordinal: int,
        start_row: int,
        prefix: Prefix | None,
    ) -> None:
        self.split = split
        self.ordinal = ordinal
        self.total: int | None = None
        self.received = start_row
        self.opened = False
        self._start_known = not start_row  # whether the digest of the rows before it is known
        self._last_state: Prefix | None = None  # when it was closed
        self.replayed = self.total_replayed = 0
        self.advanced_at = float("-inf")
        self.worker = self.failure = ""
        self._context = context
        self._at = context.plan.locate(split)
        self._prefix = prefix
        # Borders of blocks: that of the first queued block, those before it, and the later ones.
        self._borders = deque([Prefix()])
        if prefix is not None:
            self._borders = deque([prefix.anchor or Prefix(), prefix])
        self._queue: deque[BlockSlices] = deque()
        self._queued_bytes = 0
        self._taken = 0  # rows of the first queued block
        self._error: DistributedInputError | None = None
        self._closed = False
        self._retry = StreamRetry(context.timeout_seconds)
        # The present attempt.
        self._call: SplitCall | None = None
        self._opened_at, self._has_block = start_row, False
        self._received_bytes = self._credit = 0
        self._active_at = 0.0  # when it began, or last received something
        self._open()

    # Called by the partition's reader.

    def next(self, rows: int) -> list[RowBlock]:
        """Return up to `rows` of the rows received so far, as views.

        Raises:
            DistributedInputError: the stream has failed, and all rows before the error are taken.
        """
        taken: list[RowBlock] = []
        while rows and self._queue:
            slices = self._queue[0]
            block = slices.block
            stop = min(block.rows, self._taken + rows)
            taken.append(slices.slice(self._taken, stop))
            rows -= stop - self._taken
            self._taken = stop
            if stop == block.rows:
                self._queue.popleft()
                self._queued_bytes -= block.cost
                self._taken = 0
        if not taken and self._error is not None:
            raise self._error
        if not taken and self._call is not None:
            self._check_worker()
        self.grant()
        return taken

    def state(self) -> Prefix | None:
        """Return the first rows of the split that were taken, as far as their digest is known.

        It is the digest of what was received without what is queued, so no row is summed again.
        """
        if self._last_state is not None:
            return self._last_state
        if not self._start_known:
            return self._prefix
        queued = [slices.block.digests for slices in self._queue]
        if self._taken:
            queued[0] = queued[0][self._taken :]
        return self._anchored((self._prefix or Prefix()).without(queued), len(queued))

    def _anchored(self, prefix: Prefix, queued: int) -> Prefix:
        """Return a prefix with its anchor. It ends at or in the first of the `queued` blocks."""
        anchor = self._borders[max(0, len(self._borders) - 1 - queued - _WINDOW_BLOCKS)]
        return replace(prefix, anchor=anchor if 0 < anchor.rows < prefix.rows else None)

    def grant(self) -> None:
        """Let the worker send more if half of the queue is free. Steps take these rows next."""
        limit = self._context.head_bytes
        credit = self._received_bytes + limit - self._queued_bytes
        if self._call is not None and credit - self._credit >= max(1, limit // 2):
            self._credit = credit
            self._active_at = time.monotonic()  # silence of the worker counts from here
            self._call.grant(credit)

    def _check_worker(self) -> None:
        """Leave a worker that has sent nothing for a while, if it is gone."""
        silent, pool = time.monotonic() - self._active_at, self._context.pool
        if silent > _SILENT_SECONDS and pool.is_draining(self.worker):
            error = f"it has left, and has sent nothing for {_SILENT_SECONDS:.0f} s"
            self._retry_after(UnavailableError(f"worker {self.worker}: {error}"))
        elif silent > _SUSPICIOUS_SECONDS:
            pool.suspect(self.worker)

    @property
    def problem(self) -> str:
        """Why no rows have come lately, as text for people, or "" if that is unknown."""
        at, pool = self._at, self._context.pool
        return self.failure or pool.stalled(self.worker, dataset_name(at.job), at.epoch, at.split)

    @property
    def is_full(self) -> bool:
        """Whether the split has more rows, which wait until the queue has room."""
        return self._call is not None and self._received_bytes >= self._credit

    @property
    def exhausted(self) -> bool:
        """Whether all rows of the split were taken."""
        return self.total is not None and not self._queue

    def close(self) -> None:
        """Stop reading and drop queued rows."""
        self._last_state = self.state()
        self._closed = True
        self._queue.clear()
        self._end_attempt(failed=False)
        self._context.states.drop(self.split)

    # Opening.

    def _open(self) -> None:
        """Open the stream on a worker, at the first row not yet received."""
        context = self._context
        crash = context.pool.crash(*self._at)
        if crash:
            self._fail(DatasetFnError(crash))
            return
        keys = context.plan.concurrent_keys(self.ordinal, context.pool.size)
        chosen = context.pool.acquire(keys, context.plan.key(self.split))
        if chosen is None:
            self._wait_for_worker()
            return
        self.worker, link = chosen
        self._opened_at, self._has_block, self.replayed = self.received, False, 0
        self._received_bytes, self._active_at = 0, time.monotonic()
        # With a full queue, the worker replays meanwhile, and sends one block. Attempts that break
        # must not fill the memory with such blocks.
        limit, queued = context.queue_bytes, self._queued_bytes
        self._credit = max(int(queued < 2 * limit), limit - queued)
        self._call = link.open(self._request(), self._credit, self)

    def _reopen(self) -> None:
        with self._context.lock:
            if self._closed or self._call is not None:
                return
            try:
                self._open()
            except Exception as error:  # noqa: BLE001  a bug must be reported to the user
                self._report_bug(error)

    def _end_attempt(self, failed: bool) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.close()
            self._context.pool.release(self.worker, failed)
        self._context.stats.waiting.pop("worker", None)  # other streams set it again

    def _retry_after(self, error: DistributedInputError, explained: bool = True) -> None:
        """End the attempt because of an error, and open the stream again unless it must not be.

        Args:
            error: the error.
            explained: whether the worker itself reported it.
        """
        self._end_attempt(failed=True)
        advanced = self.received > self._opened_at
        if advanced and not explained:
            self._context.pool.record_loss(self.worker)
        self._retry.record_failure(error, advanced, self.replayed, time.monotonic())
        if not self._give_up(error):
            self._report_retry(error)
            self._context.pool.later(self._retry.next_delay(), self._reopen)

    def _give_up(self, error: DistributedInputError) -> bool:
        """Fail if the stream must not be opened again. Return whether it failed."""
        now, retry = time.monotonic(), self._retry
        if retry.is_terminal(error):
            self._fail(error)
            return True
        if not retry.is_timed_out(now):
            return False
        self._fail(
            UnavailableError(
                f"split {self._at.split} of job {self._at.job.name} could not be read for "
                f"{retry.waited(now):.0f} s (spec.sidecar.timeoutSeconds): {error}"
            )
        )
        return True

    def _report_retry(self, error: DistributedInputError) -> None:
        self._context.stats.reconnects[type(error).__name__] += 1
        self._context.stats.waiting["worker"] = "a worker"
        self.failure = str(error)
        _log.warning(
            "stream broke; opening it again",
            split=self.split,
            epoch=self._context.plan.epoch,
            row=self.received,
            worker=self.worker,
            cause=str(error),
        )

    def _wait_for_worker(self) -> None:
        now = time.monotonic()
        if self._retry.is_timed_out(now):
            self._fail(
                UnavailableError(
                    f"no worker of job {self._context.plan.job.name} for "
                    f"{self._retry.waited(now):.0f} s (spec.sidecar.timeoutSeconds). Check that "
                    "its workers are running and reach the dispatcher. Iterating again resumes at "
                    "this row"
                )
            )
            return
        self._context.stats.waiting["worker"] = "a worker"
        self.failure = "no worker is available: check that workers run and reach the dispatcher"
        self._context.pool.later(_NO_WORKER_SECONDS, self._reopen)

    def _fail(self, error: DistributedInputError) -> None:
        self._error = error
        self._closed = True
        self._end_attempt(failed=True)
        self._context.states.drop(self.split)
        self._context.arrived.notify_all()

    def _report_bug(self, error: Exception) -> None:
        _log.exception("stream failed", split=self.split, epoch=self._context.plan.epoch)
        self._fail(internal_error(error))

    def _request(self) -> worker_pb2.StreamRequest:
        plan, at = self._context.plan, self._at
        prefix = self._anchored(self._prefix or Prefix(), 0)
        # If a difference is an error, all rows are compared.
        anchor = Prefix() if plan.job.strict else prefix.anchor or Prefix()
        return worker_pb2.StreamRequest(
            job=at.job,
            seed=plan.seed,
            epoch=at.epoch,
            split=at.split,
            start_row=self.received,
            prefix_rows=prefix.rows,
            prefix_digest=prefix.digest,
            check_prefix=prefix.rows > 0,
            protocol=PROTOCOL,
            resume_token=self._context.states.of(self.split),
            digest_version=DIGEST_VERSION,
            ordinal=self.ordinal,
            block_bytes=self._context.block_bytes,
            anchor_rows=anchor.rows,
            anchor_digest=anchor.digest,
        )

    # Called by the connection's thread.

    def fail(self, call: SplitCall, error: DistributedInputError, explained: bool) -> None:
        """Open the stream again after an error that ended a call."""
        with self._context.lock:
            if call is self._call:
                self._retry_after(error, explained)

    def receive(self, call: SplitCall, block: RowBlock) -> None:
        """Take a block that has arrived."""
        with self._context.lock:
            if call is not self._call:
                return  # of an earlier attempt
            try:
                self._receive(block)
            except ValueError as error:
                self._retry_after(UnavailableError(f"worker {self.worker}: {error}"))
            except Exception as error:  # noqa: BLE001  a bug must be reported to the user
                self._report_bug(error)

    def _receive(self, block: RowBlock) -> None:
        states = self._context.states
        if block.resume_token:
            states.keep(self.split, block.resume_token)
            return
        if block.replayed:
            self._record_replay(block.replayed)
            return
        states.record_rows(self.split)
        # A later report of replayed rows is of another replay: the stream fell behind others.
        self.replayed = 0
        if not self._has_block:
            self._open_at(block, replays=self.received > 0)
            self._has_block = True
        if not self._closed:
            self._accept(block)

    def _record_replay(self, replayed: int) -> None:
        self._context.states.record_begin(self.split)
        self._active_at = self.advanced_at = time.monotonic()
        self.total_replayed += max(0, replayed - self.replayed)
        self.replayed, self.failure = replayed, ""
        self._context.stats.waiting.pop("worker", None)

    def _open_at(self, block: RowBlock, replays: bool) -> None:
        """Take over what the first block of a stream reports of the rows before it."""
        stats, self.failure = self._context.stats, ""
        stats.waiting.pop("worker", None)
        stats.replays += replays
        before = Prefix(block.first_row, block.prefix_digest)
        known = self._prefix or Prefix()
        if before.rows < known.rows:
            self._report_difference(
                block, f"it ended after {before.rows} rows, but {known.rows} rows were read before"
            )
        elif block.prefix_differs:
            self._report_difference(
                block, f"its first {known.rows} rows differ from those read before"
            )
            self._prefix, self._borders = before, deque([Prefix(), before])
        elif known.rows < before.rows:
            self._prefix = before
            self._borders.append(before)
        self._start_known = True

    def _report_difference(self, block: RowBlock, difference: str) -> None:
        plan = self._context.plan
        self._context.stats.mismatches += 1
        message = (
            f"split {self._at.split} of epoch {self._at.epoch} was replayed on a {block.node} node "
            f"and {difference}: the dataset is not deterministic, or it has changed. Seed its "
            "random operations, use one kind of node, and change data only between runs"
        )
        if plan.job.strict:
            self._fail(ReplayError(message))
            return
        self._context.differences.append(message)
        _log.warning("replay differs", detail=message, split=self.split, row=self.received)

    def _accept(self, block: RowBlock) -> None:
        """Queue a block."""
        context = self._context
        # The partition's reader waits only for rows when there are none, or for the end.
        notify = not self._queue or block.last
        self.opened = True
        self._active_at = self.advanced_at = time.monotonic()
        self._check_row(block)
        check_sizes(block, context.plan.columns)
        if block.rows:
            named = replace(block, split=self.split)
            self._queue.append(BlockSlices(context.plan.columns, named))
            self._queued_bytes += block.cost
            self._received_bytes += block.cost
            self.received += block.rows
            self._prefix = (self._prefix or Prefix()).extend(block.digests)
            self._borders.append(self._prefix)
            while len(self._borders) > len(self._queue) + 1 + _WINDOW_BLOCKS:
                self._borders.popleft()
            context.stats.rows += block.rows
            context.stats.bytes += block.nbytes
        if block.last:
            self.total = self.received
            self._end_attempt(failed=False)
            context.states.drop(self.split)
        if notify:
            context.arrived.notify_all()

    def _check_row(self, block: RowBlock) -> None:
        """Raise ValueError unless a block begins at the next row, or ends the split before it."""
        if block.first_row == self.received:
            return
        if not (block.last and not block.rows and block.first_row < self.received):
            raise ValueError(f"it sent row {block.first_row} instead of row {self.received}")
        # An assumed start may lie behind the split's end. Rows that were read stay counted.
        self.received = max(block.first_row, self._prefix.rows if self._prefix else 0)
