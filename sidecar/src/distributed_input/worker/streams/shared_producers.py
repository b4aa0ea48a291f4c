"""The block producers of a worker, shared by streams of the same rows.

Blocks flow one way: a split is computed in a task of the pool, which appends to the window of the
producer, and a stream takes them when its reader calls `next`. A new block only wakes the reader.
The lock is not held while a split is computed, or while a reader is woken. The only other lock that
is taken while it is held is the pool's.

Streams get the same rows if dataset, seed, epoch, split and batching are the same, for example the
streams of several jobs that read one dataset. Each stream reads at its own speed within a bounded
window of blocks. The next block is produced as soon as a stream has room for it. A stream that
falls behind the window, or requests rows before it, gets a producer of its own, which others may
join. It changes to an older producer of the split as soon as its next row is in that window. So
sharing changes how often a row is produced, and never which rows a stream gets.

A stream that is ahead waits for slower streams before blocks that they need are evicted.
`WaitBudget` limits this time. Blocks that all streams have read are kept for jobs that start a
little later: if several jobs read the dataset, and in the first minute after its first stream.
After that, nothing is kept for a job that is alone.

This module is long because one lock guards what all its methods change.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import BLOCK_BYTES, RowBlock
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.compute.task_queue import ComputeTask
from distributed_input.worker.streams.block_producer import BlockProducer
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.dataset_usage import DatasetKey, DatasetUsage, SplitKey
from distributed_input.worker.streams.running_split import RunningSplit
from distributed_input.worker.streams.shared_stream import (
    SharedStream,
    first_block,
    remaining_request,
    rows_from,
)
from distributed_input.worker.streams.stalls import stalled_split
from distributed_input.worker.streams.wait_budget import WaitBudget

_WINDOW_BYTES = 8 << 20  # maximum size of the window of one producer
_MAX_WAIT_SECONDS = 0.1

StartSplit = Callable[[worker_pb2.StreamRequest, StreamCounters], RunningSplit]


class SharedProducers:
    """The running block producers of a worker. Thread-safe. No method waits.

    Args:
        start: starts a split, and does not raise; the first `next` of the result may take long.
        pool: runs the tasks that produce blocks.
        limit: maximum bytes of all windows together, in addition to one block for each.
    """

    def __init__(self, start: StartSplit, pool: ComputePool, limit: int) -> None:
        self._start, self._pool, self._limit = start, pool, limit
        self._lock = threading.Lock()
        self._producers: dict[SplitKey, list[BlockProducer]] = {}  # oldest first
        self._attached: dict[SharedStream, BlockProducer] = {}
        self._busy: dict[BlockProducer, None] = {}  # have streams
        self._idle: dict[BlockProducer, None] = {}  # ended and kept, oldest first
        self._usages: dict[DatasetKey, DatasetUsage] = {}
        self._bytes = 0
        self._removed_rows = 0  # replayed by producers that were removed
        self._wait_budget = WaitBudget(time.monotonic())
        self._wanted: list[ComputeTask] = []  # to submit when the lock is released

    def read(self, stream: SharedStream, limit: int) -> Sequence[RowBlock]:
        """Return the next blocks of a stream; see `SharedStream.next`."""
        with self._changing():
            found = self._read(stream, min(limit, BLOCK_BYTES))
            if not stream.ended:
                stream.wanted = limit - sum(block.cost for block in found)
                self._produce(self._attached[stream])
        if stream.error is not None and not found:
            raise stream.error
        return found

    def end(self, stream: SharedStream) -> None:
        """Detach a stream, which is not read any more."""
        with self._changing():
            self._end(stream)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all windows."""
        with self._lock:
            return self._bytes

    @property
    def replayed_rows(self) -> int:
        """Return the number of rows that were produced again since the start."""
        with self._lock:
            running = (*self._busy, *self._idle)
            return self._removed_rows + sum(one.counters.replayed_rows for one in running)

    def stalled(self) -> list[types_pb2.StalledSplit]:
        """Return the splits whose next block takes long, longest first."""
        now = time.monotonic()
        with self._lock:
            found = [stalled_split(one, now) for one in self._busy]
        return sorted(filter(None, found), key=lambda one: -one.seconds)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock. Then submit the tasks that the changes need."""
        with self._lock:
            yield
            wanted, self._wanted = self._wanted, []
        if wanted:
            self._pool.submit(wanted)

    # Joining and leaving. The caller holds the lock.

    def _join(self, stream: SharedStream) -> BlockProducer:
        """Attach a stream to a producer that has its next row or will have it, or to a new one."""
        if stream.usage is None:
            self._remove_unshared()
            stream.usage = self._usages.setdefault(stream.key[0], DatasetUsage())
            stream.usage.enter(stream.request.job.name)
        group = self._producers.setdefault(stream.key, [])
        producer = next((one for one in group if one.can_serve(stream)), None)
        stream.leads = producer is None
        if producer is None:
            most = self._window_limit() // 2  # one block waits while the next one is produced
            stream.request.block_bytes = min(stream.request.block_bytes, most)
            counters = StreamCounters()
            split = self._start(stream.request, counters)
            window = BlockWindow(stream.row)
            producer = BlockProducer(stream.key, split, window, counters, stream.usage)
            producer.sent_row = stream.row
            group.append(producer)
        self._idle.pop(producer, None)
        self._busy[producer] = None
        stream.states = stream.replayed = 0
        self._attached[stream] = producer
        producer.streams.append(stream)
        return producer

    def _leave(self, stream: SharedStream) -> None:
        producer = self._attached.pop(stream, None)
        if producer is None:
            return
        producer.streams.remove(stream)
        producer.drop_sent_state()
        if producer.streams:
            self._produce(producer)  # it may have waited for this stream
        elif producer.window.end is not None and not producer.prefix_differs:
            del self._busy[producer]
            self._idle[producer] = None
            self._evict(producer)
        else:
            self._remove(producer)

    def _remove(self, producer: BlockProducer) -> None:
        producer.removed = True
        if producer.task is not None:
            self._pool.cancel(producer.task)
        if producer.running_since is None:
            # Not here: TensorFlow may wait for calls of user code that have not returned.
            self._wanted.append(ComputeTask(producer.close))
        self._busy.pop(producer, None)
        self._idle.pop(producer, None)
        self._bytes -= producer.window.nbytes
        self._removed_rows += producer.counters.replayed_rows
        group = self._producers[producer.key]
        group.remove(producer)
        if not group:
            del self._producers[producer.key]

    def _end(self, stream: SharedStream, error: Exception | None = None) -> None:
        if stream.ended:
            return
        stream.ended, stream.error = True, error
        self._leave(stream)
        if stream.usage is not None:
            stream.usage.leave(stream.request.job.name)
        for key in [key for key, one in self._usages.items() if one.is_over()]:
            del self._usages[key]
        self._remove_unshared()

    def _remove_unshared(self) -> None:
        """Remove what was kept for jobs that have ended, or that have not come."""
        for producer in [one for one in self._idle if not one.usage.is_shared]:
            self._remove(producer)

    # Reading. The caller holds the lock.

    def _read(self, stream: SharedStream, limit: int) -> list[RowBlock]:
        """Return what is ready for a stream. Attach it where its next row is, or will be."""
        found: list[RowBlock] = []
        while not stream.ended:
            producer, row = self._attached.get(stream) or self._join(stream), stream.row
            window = producer.window
            if window.first <= row < window.head:
                if limit <= 0:
                    break
                blocks = self._take(producer, stream, window.blocks_from(row, limit))
                limit = 0  # the rest after other streams
                found += blocks
            elif (report := producer.next_report(stream)) is not None:
                found.append(report)
            elif producer.error is not None and row >= window.first:
                self._end(stream, producer.error)
            elif window.end is not None and row >= window.head:
                found += self._take(producer, stream, [window.end])
                self._end(stream)
            elif row < window.first or self._is_in_older(producer, stream):
                # The row was evicted here, or is ready there.
                self._leave(stream)
                stream.request = remaining_request(stream)
            else:
                break
        return found

    def _is_in_older(self, producer: BlockProducer, stream: SharedStream) -> bool:
        """Return whether an older producer has the stream's next row. `_join` finds it first."""
        group = self._producers[producer.key]
        return any(one.has_prefix_of(stream) for one in group[: group.index(producer)])

    def _take(
        self, producer: BlockProducer, stream: SharedStream, blocks: Sequence[RowBlock]
    ) -> Sequence[RowBlock]:
        """Return consecutive blocks for a stream, and evict what is not needed any more.

        If the rows before them are not the stream's rows so far, end it and return nothing.
        """
        row, before = stream.row, producer.window.prefix(stream.row)
        assert before is not None  # the window covers the rows of its streams
        first = rows_from(blocks[0], before, stream.request)
        if stream.prefix is None:
            stream.prefix = before
            first = first_block(first, stream)
        elif stream.prefix != before:
            text = "rows that were produced again differ from those sent before. Open a new stream."
            self._end(stream, UnavailableError(text))
            return ()
        if blocks[-1].rows:
            stream.prefix = blocks[-1].end_prefix
        sent = [first, *blocks[1:]]
        counters, rows = stream.counters, sum(block.rows for block in sent)
        counters.rows += rows
        counters.bytes += sum(block.nbytes for block in sent)
        counters.shared_rows += min(rows, max(0, producer.sent_row - row))
        producer.sent_row = max(producer.sent_row, stream.row)
        self._evict(producer)
        return sent

    def _evict(self, producer: BlockProducer) -> None:
        """Apply the size limits to a producer's window and to the idle producers."""
        before = producer.window.nbytes
        if not producer.usage.is_shared:
            producer.window.drop_before(producer.lowest_row)
        producer.window.trim(self._window_limit())
        self._bytes += producer.window.nbytes - before
        while self._bytes > self._limit and self._idle:
            self._remove(next(iter(self._idle)))

    def _window_limit(self) -> int:
        """Return the maximum bytes of one window."""
        return max(BLOCK_BYTES, min(_WINDOW_BYTES, self._limit // max(1, len(self._busy))))

    # Producing. The caller holds the lock, except in `_run` and `_retry`.

    def _produce(self, producer: BlockProducer) -> None:
        """Have the next block produced, if a stream has room for it."""
        if producer.error is not None or producer.window.end is not None or producer.removed:
            return
        needs = [
            stream.need
            for stream in producer.streams
            if producer.window.ahead(stream.row) < min(stream.wanted, BLOCK_BYTES)
        ]
        if producer.task is not None:
            for need in needs:
                known = producer.task.orders.get(need.reader)
                if known is None or need.order < known:
                    self._pool.add_need(producer.task, need)
        elif needs and not self._waits_for_slower(producer):
            producer.task = ComputeTask(functools.partial(self._run, producer), *needs)
            self._wanted.append(producer.task)
        elif not needs and producer.waiting_since is not None:
            self._stop_waiting(producer)

    def _waits_for_slower(self, producer: BlockProducer) -> bool:
        """Return whether the next block has to wait: it would evict one that a stream needs."""
        left = self._stop_waiting(producer)
        if left <= 0 or not producer.window.is_full(self._window_limit(), producer.lowest_row):
            return False
        producer.waiting_since = time.monotonic()
        if not producer.has_timer:
            producer.has_timer = True
            retry = functools.partial(self._retry, producer)
            timer = threading.Timer(min(_MAX_WAIT_SECONDS, left), retry)
            timer.daemon = True
            timer.start()
        return True

    def _stop_waiting(self, producer: BlockProducer) -> float:
        """Count the time that a producer has waited. Return what is left, in seconds."""
        now, since = time.monotonic(), producer.waiting_since
        producer.waiting_since = None
        return self._wait_budget.update(now, now - since if since is not None else 0.0)

    def _retry(self, producer: BlockProducer) -> None:
        """Produce the next block of a producer that has waited, or wait again."""
        with self._changing():
            producer.has_timer = False
            if producer.waiting_since is not None:
                self._produce(producer)

    def _run(self, producer: BlockProducer) -> Sequence[ComputeTask]:
        """Produce the next blocks. Return the tasks that are to follow."""
        blocks: Sequence[RowBlock] = ()
        error: Exception | None = None
        producer.running_since = time.monotonic()
        try:
            blocks = tuple(producer.split.next(1))
        except SystemExit as raised:
            error = UnavailableError(f"the dataset ended its process: {raised!r}")
        except Exception as raised:  # noqa: BLE001 - goes to the streams
            error = raised
        with self._lock:
            producer.task = producer.running_since = None
            if not producer.removed:
                producer.error = error
                for block in blocks:
                    producer.publish(block)
                    self._bytes += block.cost
                self._produce(producer)
            woken = tuple(producer.streams)
            following, self._wanted = self._wanted, []
        for stream in woken:
            stream.wake()
        # After the last block was published: TensorFlow may take long to delete an iterator.
        if producer.removed or (blocks and blocks[-1].last):
            producer.close()
        return following
