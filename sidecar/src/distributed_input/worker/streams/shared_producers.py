"""The block producers of a worker, shared by streams of the same rows.

Streams get the same rows if dataset, seed, epoch, split and batching are the same, for example the
streams of several jobs that read one dataset. Each stream reads at its own speed within a bounded
window of blocks. The stream that needs the next block produces it for all of them. A stream that
falls behind the window, or requests rows before it, gets a producer of its own, which others may
join. It changes to an older producer of the split as soon as its next row is in that window. So
sharing changes which stream produces a row, and never which rows a stream gets.

A stream that is ahead waits for slower streams before it evicts blocks that they need. `WaitBudget`
limits this time. Blocks that all streams have read are kept for jobs that start a little later: if
several jobs read the dataset, and in the first minute after its first stream. After that, nothing
is kept for a job that is alone.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.streams.block_producer import BlockProducer
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.counters import StreamCounters, sum_counters
from distributed_input.worker.streams.dataset_usage import (
    DatasetKey,
    DatasetUsage,
    SplitKey,
    sharing_keys,
)
from distributed_input.worker.streams.element_rows import BLOCK_BYTES
from distributed_input.worker.streams.fair_semaphore import FairSemaphore
from distributed_input.worker.streams.permit_queue import PermitRequest
from distributed_input.worker.streams.stalls import stalled_split
from distributed_input.worker.streams.stream_cursor import (
    StreamCursor,
    encoded_from,
    joining_header,
    remaining_request,
)
from distributed_input.worker.streams.wait_budget import WaitBudget

_WINDOW_BYTES = 8 << 20  # maximum size of the window of one producer

StartBlocks = Callable[[worker_pb2.StreamRequest, StreamCounters], Generator[RowBlock, None, None]]


class SharedProducers:
    """The running block producers of a worker. Thread-safe.

    Args:
        start: starts a split; the first `next` of the result may take long.
        cores: acquired while a block is produced.
        limit: maximum bytes of all windows together, in addition to one block for each.
    """

    def __init__(self, start: StartBlocks, cores: FairSemaphore, limit: int) -> None:
        self._start, self._cores, self._limit = start, cores, limit
        self._lock = threading.Lock()
        self._producers: dict[SplitKey, list[BlockProducer]] = {}  # oldest first
        self._idle: OrderedDict[BlockProducer, None] = OrderedDict()  # ended and kept, oldest first
        self._usages: dict[DatasetKey, DatasetUsage] = {}
        self._busy = 0  # number of producers with streams
        self._bytes = 0
        self._removed = StreamCounters()  # sum of the removed producers' counters
        self._wait_budget = WaitBudget(time.monotonic())

    def blocks(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Iterator[bytes]:
        """Yield the encoded blocks of a request.

        Args:
            request: request of a sidecar.
            counters: updated with what is sent.

        Raises:
            UnavailableError: rows that were produced again differ from the rows that were sent.
            Exception: any error of the split.
        """
        cursor = StreamCursor(request, counters)
        dataset, key = sharing_keys(request)
        with self._lock:
            usage = self._usages.setdefault(dataset, DatasetUsage())
            usage.enter(request.job.name)
            producer = self._join(key, usage, cursor)
        try:
            while True:
                row = cursor.row
                block = self._next(producer, cursor)
                if block is None:
                    producer = self._change_producer(producer, cursor)
                    continue
                if block.replayed:
                    if request.tell_replay:
                        yield block.encoded
                    continue
                if block.resume_token:
                    if request.accept_states:
                        yield block.encoded
                    continue
                yield encoded_from(block, row, request) + cursor.take_header()
                if block.last:
                    return
        finally:
            with self._lock:
                self._leave(producer, cursor)
                self._close(usage, request.job.name)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all windows."""
        with self._lock:
            return self._bytes

    def totals(self) -> StreamCounters:
        """Return the counters of everything that was produced, whether it was sent or not."""
        with self._lock:
            running = [one.counters for group in self._producers.values() for one in group]
            return sum_counters([self._removed, *running])

    def stalled(self) -> list[types_pb2.StalledSplit]:
        """Return the splits whose next block takes long, longest first."""
        now = time.monotonic()
        with self._lock:
            running = [
                stalled_split(producer, now)
                for group in self._producers.values()
                for producer in group
            ]
        found = [one for one in running if one is not None]
        return sorted(found, key=lambda one: -one.seconds)

    # Joining and leaving. The caller holds the lock.

    def _join(self, key: SplitKey, usage: DatasetUsage, cursor: StreamCursor) -> BlockProducer:
        """Return a producer that has the stream's next row or will have it. Start one if needed."""
        for producer in self._producers.get(key, ()):
            if producer.can_serve(cursor):
                cursor.leads = False
                self._attach(producer, cursor)
                return producer
        counters = StreamCounters()
        producer = BlockProducer(
            key,
            self._start(cursor.request, counters),
            BlockWindow(cursor.row),
            counters,
            usage,
            threading.Condition(self._lock),
        )
        cursor.leads = True
        self._producers.setdefault(key, []).append(producer)
        self._attach(producer, cursor)
        return producer

    def _attach(self, producer: BlockProducer, cursor: StreamCursor) -> None:
        self._busy += not producer.window.positions
        self._idle.pop(producer, None)
        cursor.joining = True
        producer.window.positions[id(cursor)] = cursor.row

    def _leave(self, producer: BlockProducer, cursor: StreamCursor) -> None:
        if producer.window.positions.pop(id(cursor), None) is None:
            return
        producer.wake_waiting(self._window_limit())
        if producer.window.positions:
            return
        self._busy -= 1
        if producer.window.end is not None and not producer.prefix_differs:
            self._idle[producer] = None
            self._evict(producer)
        else:
            self._remove(producer)

    def _remove(self, producer: BlockProducer) -> None:
        self._idle.pop(producer, None)
        self._bytes -= producer.window.nbytes
        self._removed = sum_counters([self._removed, producer.counters])
        group = self._producers[producer.key]
        group.remove(producer)
        if not group:
            del self._producers[producer.key]

    def _close(self, usage: DatasetUsage, job: str) -> None:
        """Record that a job's stream is closed. Remove what was kept for jobs that have ended."""
        usage.leave(job)
        for key in [key for key, one in self._usages.items() if one.is_over()]:
            del self._usages[key]
        for producer in [one for one in self._idle if not one.usage.is_shared]:
            self._remove(producer)

    # Reading.

    def _change_producer(self, producer: BlockProducer, cursor: StreamCursor) -> BlockProducer:
        """Return the producer for a stream whose row was evicted here or is ready elsewhere."""
        with self._lock:
            self._leave(producer, cursor)
            cursor.replayed = 0
            cursor.request = remaining_request(cursor)
            return self._join(producer.key, producer.usage, cursor)

    def _next(self, producer: BlockProducer, cursor: StreamCursor) -> RowBlock | None:
        """Return the stream's next block. None if it has to change producers."""
        window = producer.window
        with self._lock:
            while True:
                block = window.block_at(cursor.row)
                if block is not None:
                    return self._take(producer, cursor, block, produced=False)
                if producer.error is not None:
                    raise producer.error
                if window.end is not None and cursor.row >= window.head:
                    return self._take(producer, cursor, window.end, produced=False)
                if cursor.row < window.first or self._is_in_older(producer, cursor):
                    return None
                progress = producer.next_progress(cursor)
                if progress is not None:
                    return progress
                if producer.request is not None:
                    self._cores.add_need(producer.request, cursor.need)
                    producer.changed.wait(1.0)
                elif not self._wait_for_slower(producer):
                    producer.request = request = PermitRequest(cursor.need)
                    break
        return self._produce(producer, cursor, request)

    def _is_in_older(self, producer: BlockProducer, cursor: StreamCursor) -> bool:
        """Return whether an older producer has the stream's next row. `_join` finds it first."""
        group = self._producers[producer.key]
        return len(group) > 1 and any(
            older.has_prefix_of(cursor) for older in group[: group.index(producer)]
        )

    def _wait_for_slower(self, producer: BlockProducer) -> bool:
        """Wait a moment if the next block evicts a block that a stream needs.

        Returns:
            Whether it waited.
        """
        if not producer.window.is_full(self._window_limit()):
            return False
        began = time.monotonic()
        left = self._wait_budget.update(began)
        if left <= 0:
            return False
        producer.waiting += 1
        producer.changed.wait(min(0.1, left))
        producer.waiting -= 1
        now = time.monotonic()
        self._wait_budget.update(now, now - began)
        return True

    def _produce(
        self, producer: BlockProducer, cursor: StreamCursor, request: PermitRequest
    ) -> RowBlock:
        try:
            with self._cores.permit(request):
                producer.running_since = time.monotonic()
                block = next(producer.blocks)
            if block.last:
                producer.blocks.close()
        except BaseException as error:  # any error must wake the streams that wait for the block
            with self._lock:
                producer.fail(error)
            raise
        with self._lock:
            producer.publish(block)
            if block.replayed:
                cursor.replayed = block.replayed
                return block
            if block.resume_token:
                return block
            self._bytes += len(block.encoded) if block.rows else 0
            return self._take(producer, cursor, block, produced=True)

    def _take(
        self, producer: BlockProducer, cursor: StreamCursor, block: RowBlock, produced: bool
    ) -> RowBlock:
        """Move the stream behind a block, and evict what is not needed any more."""
        row = cursor.row
        if cursor.joining:
            self._check_join(producer, cursor)
        assert cursor.prefix is not None
        rows = max(0, block.end_row - row)
        cursor.prefix = cursor.prefix.extend(block.digests[block.rows - rows :])
        cursor.counters.rows += rows
        cursor.counters.bytes += block.nbytes
        cursor.counters.shared_rows += 0 if produced else rows
        producer.window.positions[id(cursor)] = cursor.row
        self._evict(producer)
        producer.wake_waiting(self._window_limit())
        return block

    def _check_join(self, producer: BlockProducer, cursor: StreamCursor) -> None:
        """Check that the rows before the producer's next block are the stream's rows so far.

        Raises:
            UnavailableError: they differ.
        """
        before = producer.window.prefix(cursor.row)
        assert before is not None  # the window covers the rows of its streams
        if cursor.prefix is None:
            cursor.prefix = before
            if not cursor.leads:
                cursor.header = joining_header(cursor)
        elif not before.matches(cursor.prefix):
            raise UnavailableError(
                "rows that were produced again differ from those sent before. Open a new stream."
            )
        cursor.joining = False

    def _evict(self, producer: BlockProducer) -> None:
        """Apply the size limits to a producer's window and to the idle producers."""
        before = producer.window.nbytes
        if not producer.usage.is_shared:
            producer.window.drop_read()
        producer.window.trim(self._window_limit())
        self._bytes += producer.window.nbytes - before
        while self._bytes > self._limit and self._idle:
            self._remove(next(iter(self._idle)))

    def _window_limit(self) -> int:
        """Return the maximum bytes of one window."""
        return max(BLOCK_BYTES, min(_WINDOW_BYTES, self._limit // max(1, self._busy)))
