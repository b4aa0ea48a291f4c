"""The block producers of a worker, shared by streams of the same rows.

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

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters, sum_counters
from distributed_input.link.blocks.sender import Outlet
from distributed_input.rows.blocks import BLOCK_BYTES, RowBlock
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.compute.task_queue import ComputeTask
from distributed_input.worker.streams.block_producer import BlockProducer, Blocks
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.dataset_usage import (
    DatasetKey,
    DatasetUsage,
    SplitKey,
    sharing_keys,
)
from distributed_input.worker.streams.stalls import stalled_split
from distributed_input.worker.streams.stream_cursor import (
    StreamCursor,
    joining_block,
    remaining_request,
    rows_from,
)
from distributed_input.worker.streams.wait_budget import WaitBudget

_WINDOW_BYTES = 8 << 20  # maximum size of the window of one producer
_MAX_WAIT_SECONDS = 0.1

StartBlocks = Callable[[worker_pb2.StreamRequest, StreamCounters], Blocks]


class SharedProducers:
    """The running block producers of a worker. Thread-safe. No method waits.

    Args:
        start: starts a split, and does not raise; the first `next` of the result may take long.
        pool: runs the tasks that produce blocks.
        limit: maximum bytes of all windows together, in addition to one block for each.
    """

    def __init__(self, start: StartBlocks, pool: ComputePool, limit: int) -> None:
        self._start, self._pool, self._limit = start, pool, limit
        self._lock = threading.Lock()
        self._producers: dict[SplitKey, list[BlockProducer]] = {}  # oldest first
        self._attached: dict[StreamCursor, BlockProducer] = {}
        self._idle: OrderedDict[BlockProducer, None] = OrderedDict()  # ended and kept, oldest first
        self._usages: dict[DatasetKey, DatasetUsage] = {}
        self._busy = 0  # number of producers with streams
        self._bytes = 0
        self._removed = StreamCounters()  # sum of the removed producers' counters
        self._wait_budget = WaitBudget(time.monotonic())
        self._wanted: list[ComputeTask] = []  # to submit when the lock is released

    def open(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters, outlet: Outlet
    ) -> StreamCursor:
        """Open a stream. Its blocks go to the outlet, from now on and from other threads.

        Args:
            request: request of a sidecar.
            counters: updated with what is sent.
            outlet: takes the blocks. If rows that were produced again differ from the rows that
                were sent, it gets an UnavailableError. Else it gets any error of the split.
        """
        stream = StreamCursor(request, outlet, counters)
        dataset, key = sharing_keys(request)
        with self._lock:
            self._remove_unshared()
            usage = self._usages.setdefault(dataset, DatasetUsage())
            usage.enter(request.job.name)
            self._join(key, usage, stream)
            self._advance(stream)
        self._submit()
        return stream

    def resume(self, streams: Iterable[StreamCursor]) -> None:
        """Continue with streams whose outlets may have more room than before."""
        with self._lock:
            for stream in streams:
                self._advance(stream)
        self._submit()

    def close(self, stream: StreamCursor) -> None:
        """Close a stream. Its outlet gets nothing more."""
        with self._lock:
            self._end(stream)
        self._submit()

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
                stalled_split(one, now) for group in self._producers.values() for one in group
            ]
        found = [one for one in running if one is not None]
        return sorted(found, key=lambda one: -one.seconds)

    # Joining and leaving. The caller holds the lock.

    def _join(self, key: SplitKey, usage: DatasetUsage, stream: StreamCursor) -> None:
        """Attach a stream to a producer that has its next row or will have it, or to a new one."""
        for producer in self._producers.get(key, ()):
            if producer.can_serve(stream):
                stream.leads = False
                self._attach(producer, stream)
                return
        counters = StreamCounters()
        most = self._window_limit() // 2  # one block waits while the next one is produced
        stream.request.block_bytes = min(stream.request.block_bytes, most)
        producer = BlockProducer(
            key,
            self._start(stream.request, counters),
            BlockWindow(stream.row),
            counters,
            usage,
            sent_row=stream.row,
        )
        stream.leads = True
        self._producers.setdefault(key, []).append(producer)
        self._attach(producer, stream)

    def _attach(self, producer: BlockProducer, stream: StreamCursor) -> None:
        self._busy += not producer.streams
        self._idle.pop(producer, None)
        stream.joining, stream.states = True, 0
        producer.streams.append(stream)
        producer.window.positions[id(stream)] = stream.row
        self._attached[stream] = producer

    def _leave(self, stream: StreamCursor) -> None:
        producer = self._attached.pop(stream)
        producer.streams.remove(stream)
        del producer.window.positions[id(stream)]
        if producer.streams:
            self._produce(producer)  # it may have waited for this stream
            return
        self._busy -= 1
        if producer.window.end is not None and not producer.prefix_differs:
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
        self._idle.pop(producer, None)
        self._bytes -= producer.window.nbytes
        self._removed = sum_counters([self._removed, producer.counters])
        group = self._producers[producer.key]
        group.remove(producer)
        if not group:
            del self._producers[producer.key]

    def _end(self, stream: StreamCursor) -> None:
        """Detach a stream that has ended."""
        if stream.ended:
            return
        stream.ended = True
        usage = self._attached[stream].usage
        self._leave(stream)
        usage.leave(stream.request.job.name)
        for key in [key for key, one in self._usages.items() if one.is_over()]:
            del self._usages[key]
        self._remove_unshared()

    def _remove_unshared(self) -> None:
        """Remove what was kept for jobs that have ended, or that have not come."""
        for producer in [one for one in self._idle if not one.usage.is_shared]:
            self._remove(producer)

    # Reading. The caller holds the lock.

    def _advance(self, stream: StreamCursor) -> None:
        """Give a stream what is ready for it, and have produced what it needs next."""
        while not stream.ended:
            producer, row = self._attached[stream], stream.row
            window = producer.window
            if window.first <= row < window.head:
                room = stream.outlet.room
                if room <= 0:
                    break
                self._take(producer, stream, window.blocks_from(row, room))
            elif (report := producer.next_report(stream)) is not None:
                stream.outlet.put([report])
            elif producer.error is not None:
                self._fail(stream, producer.error)
            elif window.end is not None and row >= window.head:
                self._take(producer, stream, [window.end])
                self._end(stream)
            elif row < window.first or self._is_in_older(producer, stream):
                self._change_producer(producer, stream)
            else:
                break
        if not stream.ended:
            self._produce(self._attached[stream])

    def _change_producer(self, producer: BlockProducer, stream: StreamCursor) -> None:
        """Attach a stream elsewhere, because its row was evicted here or is ready there."""
        self._leave(stream)
        stream.replayed = 0
        stream.request = remaining_request(stream)
        self._join(producer.key, producer.usage, stream)

    def _is_in_older(self, producer: BlockProducer, stream: StreamCursor) -> bool:
        """Return whether an older producer has the stream's next row. `_join` finds it first."""
        group = self._producers[producer.key]
        return len(group) > 1 and any(
            older.has_prefix_of(stream) for older in group[: group.index(producer)]
        )

    def _fail(self, stream: StreamCursor, error: Exception) -> None:
        self._end(stream)
        stream.outlet.fail(error)

    def _take(
        self, producer: BlockProducer, stream: StreamCursor, blocks: Sequence[RowBlock]
    ) -> None:
        """Give a stream consecutive blocks, and evict what is not needed any more."""
        row = stream.row
        sent = [rows_from(blocks[0], row, stream.request), *blocks[1:]]
        if stream.joining:
            try:
                sent[0] = self._joined(producer, stream, sent[0])
            except UnavailableError as error:
                self._fail(stream, error)
                return
        assert stream.prefix is not None
        for block in sent:
            stream.prefix = stream.prefix.extend(block.digests)
        counters, rows = stream.counters, sum(block.rows for block in sent)
        counters.rows += rows
        counters.bytes += sum(block.nbytes for block in sent)
        counters.shared_rows += min(rows, max(0, producer.sent_row - row))
        producer.sent_row = max(producer.sent_row, stream.row)
        producer.window.positions[id(stream)] = stream.row
        stream.outlet.put(sent)
        self._evict(producer)

    def _joined(self, producer: BlockProducer, stream: StreamCursor, block: RowBlock) -> RowBlock:
        """Return a stream's first block from a producer, with the fields of a first block.

        Raises:
            UnavailableError: the rows before it are not the stream's rows so far.
        """
        before = producer.window.prefix(stream.row)
        assert before is not None  # the window covers the rows of its streams
        if stream.prefix is None:
            stream.prefix = before
            if not stream.leads:
                block = joining_block(block, stream)
        elif not before.matches(stream.prefix):
            raise UnavailableError(
                "rows that were produced again differ from those sent before. Open a new stream."
            )
        stream.joining = False
        return block

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

    # Producing. The caller holds the lock, except in `_run`, `_retry` and `_submit`.

    def _produce(self, producer: BlockProducer) -> None:
        """Have the next block produced, if a stream has room for it."""
        if producer.error is not None or producer.window.end is not None or producer.removed:
            return
        needs = [
            stream.need
            for stream in producer.streams
            if producer.window.ahead(stream.row) < stream.outlet.ahead
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
        if not producer.window.is_full(self._window_limit()) or left <= 0:
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
        with self._lock:
            producer.has_timer = False
            if producer.waiting_since is not None:
                self._produce(producer)
        self._submit()

    def _run(self, producer: BlockProducer) -> Sequence[ComputeTask]:
        """Produce the next block. Return the tasks that are to follow."""
        block: RowBlock | None = None
        error: Exception | None = None
        producer.thread, producer.running_since = threading.get_ident(), time.monotonic()
        try:
            block = next(producer.blocks)
        except SystemExit as raised:
            error = UnavailableError(f"the dataset ended its process: {raised!r}")
        except Exception as raised:  # noqa: BLE001 - goes to the streams
            error = raised
        with self._lock:
            producer.task = producer.running_since = None
            if not producer.removed:
                self._publish(producer, block, error)
            following = self._take_wanted()
        # After the last block was published: TensorFlow may take long to delete an iterator.
        if producer.removed or (block is not None and block.last):
            producer.close()
        return following

    def _publish(
        self, producer: BlockProducer, block: RowBlock | None, error: Exception | None
    ) -> None:
        producer.error = error
        if block is not None:
            producer.publish(block)
            self._bytes += block.cost
        for stream in tuple(producer.streams):
            self._advance(stream)
        producer.drop_sent_state()

    def _take_wanted(self) -> Sequence[ComputeTask]:
        wanted, self._wanted = self._wanted, []
        return wanted

    def _submit(self) -> None:
        if self._wanted:
            with self._lock:
                wanted = self._take_wanted()
            self._pool.submit(wanted)
