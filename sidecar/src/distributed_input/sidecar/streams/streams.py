"""One split's rows, from whichever worker serves them, at whatever row it takes.

A `SplitStream` reads blocks ahead of need into a small queue. Where a stream breaks it is
opened again, elsewhere if there is an elsewhere, at the first row not yet received, with the
digest of those received: the worker makes the rows before it again and checks that they are
the same. The queue's bound is the backpressure: a full one leaves the rest to HTTP/2's window.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from distributed_input.api.errors import (
    DatasetFnError,
    DistributedInputError,
    ReplayError,
    TerminalError,
    UnavailableError,
)
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.runtime import logs, statuses
from distributed_input.runtime.stubs import Stub
from distributed_input.sidecar.delivery import failures
from distributed_input.sidecar.streams.pool import WorkerPool

_log = logs.get("sidecar.streams")

QUEUE_BYTES = 1 << 20  # received, not yet taken; at least one block
_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_SILENT_SECONDS = 5.0  # of a worker that has left: some calls, begun as it went, never end
_DATASET_ATTEMPTS = 3  # a user's error may be the node's: others get a chance to succeed


@dataclass
class StreamStats:
    """What the streams of one input went through, for metrics. Guarded by the GIL."""

    rows: int = 0
    bytes: int = 0
    replays: int = 0
    mismatches: int = 0
    reconnects: Counter[str] = field(default_factory=Counter)  # by the class of the error
    lost_workers: set[str] = field(default_factory=set)  # that broke streams and did not drain
    waiting: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamContext:
    """What all streams of one epoch share."""

    job: types_pb2.Job
    seed: int
    epoch: int
    pool: WorkerPool
    stats: StreamStats
    lock: threading.Lock
    arrived: threading.Condition  # on `lock`: notified whenever any stream has news
    timeout_seconds: float
    deal: Sequence[Sequence[int]]  # the splits of every partition, other consumers' too
    together: int  # splits of a partition that are open at once

    def key(self, split: int) -> int:
        """Of a split of this epoch."""
        return (self.epoch << 32) ^ split

    def turns(self, ordinal: int) -> tuple[tuple[int, ...], ...]:
        """Keys of the splits that are read together with those of `ordinal`, up to these."""
        first = ordinal - ordinal % self.together
        return tuple(
            tuple(self.key(splits[at]) for splits in self.deal if at < len(splits))
            for at in range(first, ordinal + 1)
        )


@dataclass(frozen=True)
class Run:
    """Rows [start, stop) of a block."""

    block: RowBlock
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.start


@dataclass(frozen=True)
class Prefix:
    """The digest of a split's first `rows` rows."""

    rows: int
    digest: int


class SplitStream:
    """The rows of one split from `start_row` on, in order.

    Attributes:
        total: rows in the whole split, once its end has been received.
        received: index of the first row not yet received.
        start_digest: of the rows before `start_row`, once a worker has made them.
        replayed: rows that its present worker has made again, as far as it has told.
        remade: rows that any worker has made again.
        advanced_at: when a row was last received, or made again; by time.monotonic().
        worker: that was asked for its rows last.
        trouble: why it has brought nothing since, for people; empty: nobody knows.
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
        self.worker = self.trouble = ""
        self.replayed = self.remade = 0
        self.advanced_at = float("-inf")
        self.opened = False  # the first answer is here: `received` and `total` are facts
        self._context = context
        self.start_digest = None if start_row else 0
        self._prefix = prefix if prefix is not None or start_row else Prefix(0, 0)
        self._queue: deque[RowBlock] = deque()
        self._queued_bytes = 0
        self._taken = 0  # rows of the first queued block
        self._error: DistributedInputError | None = None
        self._closed = False
        self._call: grpc.Call | None = None
        self._heard = 0.0  # when the call began, or brought a block
        self._space = threading.Condition(context.lock)
        self._thread = threading.Thread(target=self._receive, name=f"split-{split}", daemon=True)
        self._thread.start()

    # What the assembler calls; the lock must be held.

    def take(self, rows: int) -> list[Run]:
        """Up to `rows` rows that are here already; raises what ended the stream, if anything."""
        runs: list[Run] = []
        while rows and self._queue:
            block = self._queue[0]
            stop = min(block.rows, self._taken + rows)
            runs.append(Run(block, self._taken, stop))
            rows -= stop - self._taken
            self._taken = stop
            if stop == block.rows:
                self._queue.popleft()
                self._queued_bytes -= block.nbytes
                self._taken = 0
                self._space.notify()
        if not runs and self._error is not None:
            raise self._error
        if not runs and self._is_left_alone() and self._call is not None:
            self._call.cancel()  # and so opened again, elsewhere
        return runs

    def _is_left_alone(self) -> bool:
        """Its worker takes no new streams, or is gone, and has sent nothing for a while."""
        silent = time.monotonic() - self._heard > _SILENT_SECONDS
        return silent and self._context.pool.is_draining(self.worker)

    @property
    def exhausted(self) -> bool:
        """The split's end has been taken."""
        return self.total is not None and not self._queue

    def close(self) -> None:
        """Stop reading; what is queued is dropped. Does not wait for the thread."""
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
        except Exception as error:  # noqa: BLE001  a bug must reach the user, not end in silence
            _log.exception("stream failed", split=self.split, epoch=self._context.epoch)
            self._fail(failures.unexpected(error))
        finally:
            self._context.stats.waiting.pop("worker", None)  # others say so again

    def _read_all(self) -> None:
        attempt = dataset_errors = replayed = 0
        away_since: float | None = None
        turns = self._context.turns(self.ordinal)
        while not self._closed and self.total is None:
            received = self.received
            chosen = self._context.pool.acquire(turns, self._context.key(self.split))
            if chosen is None:
                away_since = away_since or time.monotonic()
                self._wait_for_worker(away_since)
                continue
            worker_id, stub = chosen
            self.worker = worker_id
            error: DistributedInputError | None = None
            unexplained = False
            try:
                self._read(stub)
            except grpc.RpcError as broken:
                unexplained = not statuses.is_explained(broken)
                error = statuses.from_rpc_error(broken, f"worker {worker_id}")
            except ValueError as broken:
                error = UnavailableError(f"worker {worker_id}: {broken}")
            finally:
                self._context.pool.release(worker_id, failed=error is not None)
            if error is None or self._closed:
                continue
            if self.replayed > replayed:  # further than any worker before
                replayed, away_since = self.replayed, None
            if self.received > received:
                if unexplained and not self._context.pool.is_draining(worker_id):
                    self._context.stats.lost_workers.add(worker_id)
                attempt = dataset_errors = replayed = 0
                away_since = None
            away_since = away_since or time.monotonic()
            dataset_errors += isinstance(error, DatasetFnError)
            if self._give_up(error, dataset_errors, away_since):
                return
            self._context.stats.reconnects[type(error).__name__] += 1
            self._context.stats.waiting["worker"] = "a worker"
            self.trouble = str(error)
            _log.warning(
                "stream broke; opening it again",
                split=self.split,
                epoch=self._context.epoch,
                row=self.received,
                worker=worker_id,
                cause=str(error),
            )
            self._context.pool.wait(_BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)])
            attempt += 1

    def _give_up(self, error: DistributedInputError, dataset_errors: int, since: float) -> bool:
        terminal = isinstance(error, TerminalError)
        if isinstance(error, DatasetFnError):
            terminal = dataset_errors >= _DATASET_ATTEMPTS
        waited = time.monotonic() - since
        if not terminal and waited < self._context.timeout_seconds:
            return False
        if not terminal:
            error = UnavailableError(
                f"split {self.split} of job {self._context.job.name} could not be read for "
                f"{waited:.0f} s (spec.sidecar.timeoutSeconds): {error}"
            )
        self._fail(error)
        return True

    def _wait_for_worker(self, since: float) -> None:
        waited = time.monotonic() - since
        if waited >= self._context.timeout_seconds:
            self._fail(
                UnavailableError(
                    f"no worker of job {self._context.job.name} for {waited:.0f} s "
                    "(spec.sidecar.timeoutSeconds): are its workers running, and do they reach "
                    "the dispatcher? Iterating again goes on where this stopped"
                )
            )
            return
        self._context.stats.waiting["worker"] = "a worker"
        self.trouble = "no worker is there: are they running, and do they reach the dispatcher?"
        self._context.pool.wait(0.5)

    def _fail(self, error: DistributedInputError) -> None:
        with self._context.lock:
            self._error = error
            self._closed = True
            self._context.arrived.notify_all()

    def _read(self, stub: Stub) -> None:
        context = self._context
        prefix = self._prefix or Prefix(0, 0)
        request = worker_pb2.StreamRequest(
            job=context.job,
            seed=context.seed,
            epoch=context.epoch,
            split=self.split,
            start_row=self.received,
            prefix_rows=prefix.rows,
            prefix_digest=prefix.digest,
            check_prefix=prefix.rows > 0,
            protocol=PROTOCOL,
            tell_replay=True,
        )
        replayed = self.received
        call = stub.Stream(request)
        try:
            with context.lock:
                self._call, self._heard, self.replayed = call, time.monotonic(), 0
                if self._closed:
                    return
            self._take_blocks(call, replayed)
        finally:
            _end(call, finished=self.total is not None)

    def _take_blocks(self, call: Any, replayed: int) -> None:
        context = self._context
        first = True
        for block in _blocks(call):
            if block.replayed:
                with context.lock:
                    self._heard = self.advanced_at = time.monotonic()
                    self.remade += max(0, block.replayed - self.replayed)
                    self.replayed, self.trouble = block.replayed, ""
                context.stats.waiting.pop("worker", None)
                continue
            self.replayed = (
                0  # also behind others' rows: who falls behind those has them made again
            )
            if first:
                first, self.trouble = False, ""
                context.stats.waiting.pop("worker", None)
                context.stats.replays += replayed > 0
                if block.prefix_differs:
                    self._report_difference(block)
                if (
                    self._prefix is None
                    or self._prefix.rows < block.first_row
                    or block.prefix_differs
                ):
                    self._prefix = Prefix(block.first_row, block.prefix_digest)
                if self.start_digest is None:
                    self.start_digest = block.prefix_digest
            if not self._accept(block):
                return
            if block.last:
                return
        raise ValueError(f"it ended the stream within split {self.split}")

    def _report_difference(self, block: RowBlock) -> None:
        context = self._context
        context.stats.mismatches += 1
        message = (
            f"split {self.split} of epoch {context.epoch} was run again on a {block.node} node and "
            f"made other rows than before within its first {self.received}: the dataset is not "
            "deterministic. Seed what is random in it, or keep to one kind of node"
        )
        if context.job.strict:
            self._fail(ReplayError(message))
            return
        _log.warning("replay differs", detail=message, split=self.split, row=self.received)

    def _accept(self, block: RowBlock) -> bool:
        context = self._context
        with context.lock:
            while not self._closed and self._queue and self._queued_bytes >= QUEUE_BYTES:
                self._space.wait(5.0)
            if self._closed:
                return False
            # Whoever waits for this stream waits for its first answer, for rows where there are
            # none, or for its end; most blocks come before they are missed and wake nobody.
            news = not self.opened or not self._queue or block.last
            self.opened = True
            self._heard = self.advanced_at = time.monotonic()
            if block.first_row != self.received:
                # Only an end before the row asked for may come from elsewhere.
                if not (block.last and not block.rows and block.first_row < self.received):
                    raise ValueError(f"row {block.first_row} came instead of {self.received}")
                self.received = block.first_row
            if block.rows:
                self._queue.append(block)
                self._queued_bytes += block.nbytes
                self.received += block.rows
                before = self._prefix.digest if self._prefix is not None else 0
                digest = (before + blocks.digest_of(block.digests)) % (1 << 64)
                self._prefix = Prefix(self.received, digest)
                context.stats.rows += block.rows
                context.stats.bytes += block.nbytes
            if block.last:
                self.total = self.received
            if news:
                context.arrived.notify_all()
        return True


def _end(call: Any, finished: bool) -> None:
    """Read a call to its end: of one that is left before, gRPC keeps some 20 KiB for ever."""
    if not finished:
        call.cancel()
    with contextlib.suppress(grpc.RpcError):
        for _ in call:
            pass


def _blocks(call: Iterator[bytes]) -> Iterator[RowBlock]:
    for data in call:
        yield blocks.decode(data)
