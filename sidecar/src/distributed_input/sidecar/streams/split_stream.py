"""The rows of one split, read from the workers.

A `SplitStream` receives blocks ahead of need into a short queue of at least one block. When a
stream breaks, it opens another one at the first row not yet received, on another worker if there is
one. The worker replays the rows received so far, and compares their digest with the request's. A
full queue stops reading, so that HTTP/2 flow control slows the worker down.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import Any

import grpc

from distributed_input.api.errors import DistributedInputError, ReplayError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.api.stalls import dataset_name
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.runtime import logs, statuses
from distributed_input.runtime.stubs import Stub, end_stream
from distributed_input.sidecar.errors import internal_error
from distributed_input.sidecar.streams.row_slices import slice_block
from distributed_input.sidecar.streams.stream_context import StreamContext
from distributed_input.sidecar.streams.stream_retry import StreamRetry

_log = logs.get("sidecar.streams")

_SILENT_SECONDS = 5.0  # some calls to a worker that has left never end by themselves


class SplitStream:
    """The rows of one split from `start_row` on, in order.

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
        start_prefix: the rows before `start_row`, or None before a worker has replayed them.
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
        self.start_prefix = None if start_row else Prefix()
        self.replayed = self.total_replayed = 0
        self.advanced_at = float("-inf")
        self.worker = self.failure = ""
        self._context = context
        self._prefix = prefix
        self._queue: deque[RowBlock] = deque()
        self._queued_bytes = 0
        self._taken = 0  # rows of the first queued block
        self._error: DistributedInputError | None = None
        self._closed = False
        self._call: grpc.Call | None = None
        self._active_at = 0.0  # when the call began, or brought a block
        self._space = threading.Condition(context.lock)
        self._thread = threading.Thread(target=self._receive, name=f"split-{split}", daemon=True)
        self._thread.start()

    # Called by the partition's reader, which holds the lock.

    def take(self, rows: int) -> list[RowBlock]:
        """Return up to `rows` of the rows received so far, as views.

        Raises:
            DistributedInputError: the stream has failed, and all rows before the error are taken.
        """
        taken: list[RowBlock] = []
        while rows and self._queue:
            block = self._queue[0]
            stop = min(block.rows, self._taken + rows)
            taken.append(slice_block(self._context.plan.columns, block, self._taken, stop))
            rows -= stop - self._taken
            self._taken = stop
            if stop == block.rows:
                self._queue.popleft()
                self._queued_bytes -= block.nbytes
                self._taken = 0
                self._space.notify()
        if not taken and self._error is not None:
            raise self._error
        if not taken and self._is_abandoned() and self._call is not None:
            self._call.cancel()  # the receiving thread then opens the stream elsewhere
        return taken

    def _is_abandoned(self) -> bool:
        """Return whether the worker is draining or gone, and has sent nothing for a while."""
        silent = time.monotonic() - self._active_at > _SILENT_SECONDS
        return silent and self._context.pool.is_draining(self.worker)

    @property
    def problem(self) -> str:
        """Why no rows have come lately, as text for people, or "" if that is unknown."""
        plan, pool = self._context.plan, self._context.pool
        dataset = dataset_name(plan.job)
        return self.failure or pool.stalled(self.worker, dataset, plan.epoch, self.split)

    @property
    def is_full(self) -> bool:
        """Whether the split has more rows, which wait until the queue has room."""
        return self.total is None and self._queued_bytes >= self._context.queue_bytes

    @property
    def exhausted(self) -> bool:
        """Whether all rows of the split were taken."""
        return self.total is not None and not self._queue

    def close(self) -> None:
        """Stop reading and drop queued rows, without waiting for the receiving thread."""
        self._closed = True
        self._queue.clear()
        self._space.notify()
        if self._call is not None:
            self._call.cancel()
        self._context.pool.wake()

    # The receiving thread.

    def _receive(self) -> None:
        try:
            self._read_all()
        except Exception as error:  # noqa: BLE001  a bug must be reported to the user
            _log.exception("stream failed", split=self.split, epoch=self._context.plan.epoch)
            self._fail(internal_error(error))
        finally:
            self._context.states.drop(self.split)
            self._context.stats.waiting.pop("worker", None)  # other streams set it again

    def _read_all(self) -> None:
        context = self._context
        retry = StreamRetry(context.timeout_seconds)
        while not self._closed and self.total is None:
            keys = context.plan.concurrent_keys(self.ordinal, context.pool.size)
            chosen = context.pool.acquire(keys, context.plan.key(self.split))
            if chosen is None:
                self._wait_for_worker(retry)
                continue
            received = self.received
            error, explained = self._attempt(*chosen)
            if error is None or self._closed:
                continue
            advanced = self.received > received
            if advanced and not explained:
                context.pool.record_loss(self.worker)
            retry.record_failure(error, advanced, self.replayed, time.monotonic())
            if self._give_up(error, retry):
                return
            self._report_retry(error)
            context.pool.wait(retry.next_delay())

    def _attempt(self, worker_id: str, stub: Stub) -> tuple[DistributedInputError | None, bool]:
        """Read from one worker.

        Returns:
            The error that ended the stream, if any, and whether the worker itself reported it.
        """
        self.worker = worker_id
        error: DistributedInputError | None = None
        explained = True
        try:
            self._read(stub)
        except grpc.RpcError as broken:
            explained = statuses.is_explained(broken)
            error = statuses.from_rpc_error(broken, f"worker {worker_id}")
            # Its traceback refers to it again, and to the last block. Both would stay in memory
            # until the garbage collector runs.
            broken.with_traceback(None)
        except ValueError as broken:
            error = UnavailableError(f"worker {worker_id}: {broken}")
        finally:
            self._context.pool.release(worker_id, failed=error is not None)
        return error, explained

    def _give_up(self, error: DistributedInputError, retry: StreamRetry) -> bool:
        """Fail if the stream must not be opened again. Return whether it failed."""
        now = time.monotonic()
        if retry.is_terminal(error):
            self._fail(error)
            return True
        if not retry.is_timed_out(now):
            return False
        self._fail(
            UnavailableError(
                f"split {self.split} of job {self._context.plan.job.name} could not be read for "
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

    def _wait_for_worker(self, retry: StreamRetry) -> None:
        now = time.monotonic()
        if retry.is_timed_out(now):
            self._fail(
                UnavailableError(
                    f"no worker of job {self._context.plan.job.name} for {retry.waited(now):.0f} s "
                    "(spec.sidecar.timeoutSeconds). Check that its workers are running and reach "
                    "the dispatcher. Iterating again resumes at this row"
                )
            )
            return
        self._context.stats.waiting["worker"] = "a worker"
        self.failure = "no worker is available: check that workers run and reach the dispatcher"
        self._context.pool.wait(0.5)

    def _fail(self, error: DistributedInputError) -> None:
        with self._context.lock:
            self._error = error
            self._closed = True
            self._context.arrived.notify_all()

    def _read(self, stub: Stub) -> None:
        plan, prefix = self._context.plan, self._prefix or Prefix()
        request = worker_pb2.StreamRequest(
            job=plan.job,
            seed=plan.seed,
            epoch=plan.epoch,
            split=self.split,
            start_row=self.received,
            prefix_rows=prefix.rows,
            prefix_digest=prefix.digest,
            check_prefix=prefix.rows > 0,
            protocol=PROTOCOL,
            tell_replay=True,
            accept_states=True,
            resume_token=self._context.states.of(self.split),
            digest_version=prefix.version,
            ordinal=self.ordinal,
        )
        call = stub.Stream(request)
        try:
            with self._context.lock:
                self._call, self._active_at, self.replayed = call, time.monotonic(), 0
                if self._closed:
                    return
            self._receive_blocks(call, replays=self.received > 0)
        finally:
            _finish_call(call, self.total is not None)

    def _receive_blocks(self, call: Any, replays: bool) -> None:
        first = True
        for data in call:
            block = blocks.decode(data)
            if block.resume_token:
                self._context.states.keep(self.split, block.resume_token)
                continue
            if block.replayed:
                self._record_replay(block.replayed)
                continue
            self._context.states.record_rows(self.split)
            # A later report of replayed rows is of another replay: the stream fell behind others.
            self.replayed = 0
            if first:
                first = False
                self._open_at(block, replays)
            if not self._accept(block) or block.last or not self._wait_for_room():
                return
        raise ValueError(f"it ended the stream within split {self.split}")

    def _record_replay(self, replayed: int) -> None:
        self._context.states.record_begin(self.split)
        with self._context.lock:
            self._active_at = self.advanced_at = time.monotonic()
            self.total_replayed += max(0, replayed - self.replayed)
            self.replayed, self.failure = replayed, ""
        self._context.stats.waiting.pop("worker", None)

    def _open_at(self, block: RowBlock, replays: bool) -> None:
        """Take over what the first block of a stream reports of the rows before it."""
        stats = self._context.stats
        self.failure = ""
        stats.waiting.pop("worker", None)
        stats.replays += replays
        before = Prefix(block.first_row, block.prefix_digest, block.digest_version)
        known = self._prefix or Prefix()
        comparable = known.can_compare(before.version)
        if before.rows < known.rows:
            self._report_difference(
                block, f"it ended after {before.rows} rows, but {known.rows} rows were read before"
            )
        elif block.prefix_differs and comparable:
            self._report_difference(
                block, f"its first {known.rows} rows differ from those read before"
            )
            self._prefix = before
        elif known.rows < before.rows or not comparable:
            self._prefix = before
            if not comparable:
                _log.info("replay not compared: another digest version", split=self.split)
        if self.start_prefix is None:
            self.start_prefix = before

    def _report_difference(self, block: RowBlock, difference: str) -> None:
        plan = self._context.plan
        self._context.stats.mismatches += 1
        message = (
            f"split {self.split} of epoch {plan.epoch} was replayed on a {block.node} node and "
            f"{difference}: the dataset is not deterministic, or it has changed. Seed its random "
            "operations, use one kind of node, and change data only between runs"
        )
        if plan.job.strict:
            self._fail(ReplayError(message))
            return
        self._context.differences.append(message)
        _log.warning("replay differs", detail=message, split=self.split, row=self.received)

    def _accept(self, block: RowBlock) -> bool:
        """Queue a block. Return whether the stream is still open."""
        context = self._context
        with context.lock:
            if self._closed:
                return False
            # The partition's reader waits only for rows when there are none, or for the end.
            notify = not self._queue or block.last
            self.opened = True
            self._active_at = self.advanced_at = time.monotonic()
            self._check_row(block)
            if block.rows:
                self._queue.append(block)
                self._queued_bytes += block.nbytes
                self.received += block.rows
                prefix = self._prefix or Prefix()
                self._prefix = prefix.extend(block.digests, block.digest_version)
                context.stats.rows += block.rows
                context.stats.bytes += block.nbytes
            if block.last:
                self.total = self.received
            if notify:
                context.arrived.notify_all()
        return True

    def _wait_for_room(self) -> bool:
        """Wait while the queue is full, before a block is received, which takes memory too.

        Return whether the stream is still open.
        """
        with self._context.lock:
            while not self._closed and self._queued_bytes >= self._context.queue_bytes:
                self._space.wait(5.0)
                self._active_at = time.monotonic()  # silence of the worker counts from here
            return not self._closed

    def _check_row(self, block: RowBlock) -> None:
        """Raise ValueError unless a block begins at the next row, or ends the split before it."""
        if block.first_row == self.received:
            return
        if not (block.last and not block.rows and block.first_row < self.received):
            raise ValueError(f"it sent row {block.first_row} instead of row {self.received}")
        # An assumed start may lie behind the split's end. Rows that were read stay counted.
        self.received = max(block.first_row, self._prefix.rows if self._prefix else 0)


def _finish_call(call: Any, finished: bool) -> None:
    """Read a call to its end, which frees its memory. Cancel it if rows are left."""
    if finished:
        with contextlib.suppress(grpc.RpcError):
            deque(call, maxlen=0)
    end_stream(call)
