"""The worker's end of a connection, which carries all splits that one sidecar reads from it."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import grpc

from distributed_input.api.errors import DistributedInputError, ProtocolError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.api.protocol import check_protocol
from distributed_input.link import statuses
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.blocks.open_streams import OpenStreams, StreamCounters
from distributed_input.rows.blocks import BLOCK_BYTES, BLOCK_COST, RowBlock
from distributed_input.rows.prefix import check_version
from distributed_input.runtime import logs

_log = logs.get("worker.connection")
_MAX_QUEUED_BYTES = 8 << 20  # of all streams of a connection; more wait for the sender
_MAX_STREAMS = 1 << 14  # of a connection, with refused ones whose error is not sent yet

_Order = tuple[int, int]  # epoch, ordinal of the split: the sidecar reads the lowest first
Cursor = TypeVar("Cursor")


class Outlet(Protocol):
    """Where the blocks of a stream go. Its methods do not wait."""

    @property
    def room(self) -> int:
        """Return the bytes of rows that it takes now."""

    @property
    def ahead(self) -> int:
        """Return the bytes of rows that may be produced before it takes them."""

    def put(self, blocks: Sequence[RowBlock]) -> None:
        """Take consecutive blocks, or one block without rows. A block with `last` is the end."""

    def fail(self, error: Exception) -> None:
        """Take the error that ends the stream."""


class Producers(Protocol[Cursor]):
    """What makes the blocks of the streams. A cursor stands for one stream."""

    def open(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters, outlet: Outlet
    ) -> Cursor:
        """Open a stream. Its blocks go to the outlet, from now on and from other threads."""

    def resume(self, streams: Iterable[Cursor]) -> None:
        """Continue with streams whose outlets may have more room than before."""

    def close(self, stream: Cursor) -> None:
        """Close a stream. Its outlet gets nothing more."""


class _Sending(Generic[Cursor]):
    """The blocks of one stream that are ready to be sent, and its credit.

    It is the outlet of the stream's cursor. Rows wait here only until the sender takes them. What
    is produced meanwhile waits in the window of the producer, and is then sent together.
    """

    def __init__(
        self, number: int, order: _Order, credit: int, connection: Connection[Cursor]
    ) -> None:
        self.number, self.order, self.credit = number, order, credit
        self.counters: StreamCounters | None = None  # None before it is open, and when it is closed
        self.cursor: Cursor | None = None
        self.taken = 0  # bytes of all rows so far
        self.blocks: list[RowBlock] = []
        self.rows_bytes = 0  # of `blocks`
        self.error: Exception | None = None
        self.is_queued = False
        self.has_ended = False
        self._connection = connection

    @property
    def room(self) -> int:
        if self.rows_bytes or not self._connection.has_room(self):
            return 0
        return self.ahead

    @property
    def ahead(self) -> int:
        return min(BLOCK_BYTES, self.credit - self.taken)

    def put(self, blocks: Sequence[RowBlock]) -> None:
        self._connection.queue(self, blocks)

    def fail(self, error: Exception) -> None:
        self._connection.record_failure(error)
        self._connection.queue(self, (), error)

    def take(self) -> list[Frame]:
        """Return what is ready. The caller holds the lock of the connection."""
        blocks, self.blocks, self.rows_bytes = self.blocks, [], 0
        self.is_queued = False
        self.has_ended = self.error is not None or bool(blocks and blocks[-1].last)
        frames = list(_frames_of(self.number, blocks, self.error))
        # The sidecar counts blocks that are sent together as one.
        joined = sum(max(0, sum(one.rows > 0 for one in frame.blocks) - 1) for frame in frames)
        self.taken -= BLOCK_COST * joined
        return frames


class Connection(Generic[Cursor]):
    """The streams of one sidecar."""

    def __init__(self, producers: Producers[Cursor], streams: OpenStreams) -> None:
        self.queued_bytes = 0
        self._producers, self._open_streams = producers, streams
        self._streams: dict[int, _Sending[Cursor]] = {}
        self._queue: list[tuple[_Order, int, _Sending[Cursor]]] = []  # a heap
        # Got no room, because other streams had it.
        self._refused: dict[_Sending[Cursor], None] = {}
        self._numbers = itertools.count()
        self._ready = threading.Condition()
        self._closed = False

    # Requests of the sidecar.

    def read(self, requests: Iterable[worker_pb2.ConnectRequest]) -> None:
        """Handle requests until they end. Then close the connection."""
        try:
            for request in requests:
                self.handle(request)
        except grpc.RpcError:
            _log.debug("a connection ended")
        except ProtocolError as error:
            _log.warning("a connection was refused", cause=str(error))
        except Exception:  # noqa: BLE001 - a bug; the sidecar opens its streams again
            _log.exception("a connection failed")
        finally:
            self.close()

    def handle(self, request: worker_pb2.ConnectRequest) -> None:
        """Open, continue and close streams.

        Raises:
            ProtocolError: the sidecar uses the number of a stream again, or opens too many.
        """
        for number in request.close:
            self._close_stream(number)
        for opened in request.open:
            self.open(opened.stream, opened.request, opened.credit)
        resumed = []
        for credit in request.credits:
            sending = self._streams.get(credit.stream)
            if sending is not None and sending.cursor is not None:
                sending.credit = max(sending.credit, credit.credit)
                resumed.append(sending.cursor)
        self._producers.resume(resumed)

    def open(self, number: int, request: worker_pb2.StreamRequest, credit: int) -> None:
        """Open a stream. If it is refused, its error is sent."""
        sending = _Sending(number, (request.epoch, request.ordinal), credit, self)
        with self._ready:
            if self._closed:
                return
            if number in self._streams:  # it would stay open until the worker ends
                raise ProtocolError(f"the sidecar has opened stream {number} again")
            if len(self._streams) >= _MAX_STREAMS:
                raise ProtocolError(f"the sidecar has opened more than {_MAX_STREAMS:,} streams")
            self._streams[number] = sending
        try:
            check_protocol(request.protocol, "the sidecar")
            check_version(request.digest_version)
            counters = self._open_streams.enter()
        except DistributedInputError as error:
            self.queue(sending, (), error.with_traceback(None))  # it would keep these frames
            return
        with self._ready:
            is_open = self._streams.get(number) is sending
            sending.counters = counters if is_open else None
        if not is_open:  # closed by another thread, which has not seen that it was counted
            self._open_streams.leave(counters)
            return
        cursor = self._producers.open(request, counters, sending)
        with self._ready:
            sending.cursor = cursor
            is_open = self._streams.get(number) is sending
        if is_open:
            self._producers.resume([cursor])  # blocks may have been sent before it was known
        else:
            self._producers.close(cursor)

    def _close_stream(self, number: int) -> None:
        with self._ready:
            sending = self._streams.pop(number, None)
            if sending is None:
                return
            self.queued_bytes -= sending.rows_bytes
            sending.blocks, sending.rows_bytes = [], 0
            counters, sending.counters = sending.counters, None
            self._refused.pop(sending, None)
            refused = self._take_refused()
        if sending.cursor is not None:
            self._producers.close(sending.cursor)
        self._resume(refused)
        if counters is not None:
            self._open_streams.leave(counters)

    def fail_all(self, error: UnavailableError) -> None:
        """End all streams with an error."""
        with self._ready:
            streams = list(self._streams.values())
        for sending in streams:
            if sending.cursor is not None:
                self._producers.close(sending.cursor)
            self.queue(sending, (), error)

    def close(self) -> None:
        """Close all streams. `frames` ends."""
        with self._ready:
            self._closed = True
            numbers = list(self._streams)
            self._ready.notify_all()
        for number in numbers:
            self._close_stream(number)

    def _resume(self, streams: Iterable[_Sending[Cursor]]) -> None:
        self._producers.resume(one.cursor for one in streams if one.cursor is not None)

    # Blocks for the sidecar.

    def has_room(self, sending: _Sending[Cursor]) -> bool:
        """Return whether rows of a stream may be queued. If not, it is resumed when they may."""
        with self._ready:
            if self.queued_bytes < _MAX_QUEUED_BYTES:
                return True
            self._refused[sending] = None
            return False

    def _take_refused(self) -> list[_Sending[Cursor]]:
        """Return the streams to resume, if there is room again. The caller holds the lock."""
        if self.queued_bytes >= _MAX_QUEUED_BYTES:
            return []
        refused = list(self._refused)
        self._refused.clear()
        return refused

    def record_failure(self, error: Exception) -> None:
        """Count an error of a split."""
        self._open_streams.record_failure(type(error).__name__)

    def queue(
        self, sending: _Sending[Cursor], blocks: Sequence[RowBlock], error: Exception | None = None
    ) -> None:
        """Queue blocks of a stream, or the error that ends it."""
        with self._ready:
            if self._streams.get(sending.number) is not sending:
                return  # closed meanwhile
            if not sending.is_queued:
                sending.is_queued = True
                heapq.heappush(self._queue, (sending.order, next(self._numbers), sending))
                self._ready.notify()
            sending.blocks += blocks
            sending.error = sending.error or error
            cost = sum(block.cost for block in blocks)
            sending.taken += cost
            sending.rows_bytes += cost
            self.queued_bytes += cost

    def frames(self) -> Iterator[Sequence[Frame]]:
        """Yield frames to be sent together, of about one block, until the connection is closed."""
        while (frames := self._next_frames()) is not None:
            if frames:
                ready = time.perf_counter()
                yield frames
                self._open_streams.record_stall(time.perf_counter() - ready)

    def _next_frames(self) -> list[Frame] | None:
        """Wait for blocks. Return those that are needed first. None if the connection is closed."""
        frames: list[Frame] = []
        emptied: list[_Sending[Cursor]] = []
        size = 0
        with self._ready:
            while not self._queue and not self._closed:
                self._ready.wait()
            if self._closed:
                return None
            while self._queue and size < BLOCK_BYTES:
                sending = heapq.heappop(self._queue)[2]
                if self._streams.get(sending.number) is not sending:
                    continue  # closed meanwhile
                size += sending.rows_bytes
                self.queued_bytes -= sending.rows_bytes
                frames += sending.take()
                emptied.append(sending)
            refused = self._take_refused()
        self._resume([one for one in emptied if not one.has_ended] + refused)
        for sending in emptied:
            if sending.has_ended:
                self._close_stream(sending.number)
        return frames


def _frames_of(number: int, blocks: Sequence[RowBlock], error: Exception | None) -> Iterator[Frame]:
    """Yield the frames of a stream: consecutive rows together, each other block alone."""
    rows: list[RowBlock] = []
    for block in blocks:
        if block.rows or block.last:
            rows.append(block)
            continue
        if rows:
            yield Frame(number, rows)
            rows = []
        yield Frame(number, (block,))
    if rows:
        yield Frame(number, rows)
    if error is not None:
        kind, message = statuses.explain(error, "a stream")
        yield Frame(number, error=worker_pb2.StreamError(kind=kind, message=message))
