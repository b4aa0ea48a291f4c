"""The worker's end of a connection, which carries all splits that one sidecar reads from it.

Rows flow one way: the sender takes them from the streams, which are woken when they have more. No
method of a stream is called with the lock held.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import grpc

from distributed_input.api.errors import DistributedInputError, ProtocolError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.api.protocol import check_protocol
from distributed_input.link import statuses
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.blocks.open_streams import OpenStreams, StreamCounters
from distributed_input.rows.blocks import BLOCK_BYTES, BLOCK_COST, RowBlock
from distributed_input.rows.prefix import Prefix, check_version
from distributed_input.rows.stage import Stage
from distributed_input.runtime import logs

_log = logs.get("worker.connection")
_MAX_STREAMS = 1 << 14  # of a connection, with refused ones whose error is not sent yet

OpenStage = Callable[[worker_pb2.StreamRequest, StreamCounters, Callable[[], None]], Stage[Prefix]]
"""Opens the stage of a request. The last argument is called, without a lock, when it has more."""


class _Stream:
    """A stream of a connection.

    Args:
        number: number of the stream.
        request: request of the sidecar.
        credit: see `StreamCredit` in proto/worker.proto.

    Attributes:
        read_at: epoch and ordinal of the split: the sidecar reads the lowest first.
        order: place among the streams that wait for the sender; the lowest is the first.
        stage: its rows; None before it is open.
        counters: its counters; None before it is open.
        taken: bytes of all rows so far, as the sidecar counts them.
        error: what ends the stream, besides errors of the stage.
        is_queued: whether it waits for the sender.
    """

    def __init__(self, number: int, request: worker_pb2.StreamRequest, credit: int) -> None:
        self.number, self.credit, self.taken = number, credit, 0
        self.read_at = request.epoch, request.ordinal
        self.order = (-1, 0)  # its split is started before others are sent: that may take long
        self.stage: Stage[Prefix] | None = None
        self.counters: StreamCounters | None = None
        self.error: Exception | None = None
        self.is_queued = False


class Connection:
    """The streams of one sidecar.

    Args:
        open_stage: opens the stage of a stream.
        streams: open streams of this worker.
    """

    def __init__(self, open_stage: OpenStage, streams: OpenStreams) -> None:
        self._open_stage, self._open_streams = open_stage, streams
        self._streams: dict[int, _Stream] = {}
        self._queue: list[tuple[tuple[int, int], int, _Stream]] = []  # a heap; may have more
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
        for credit in request.credits:
            stream = self._streams.get(credit.stream)
            if stream is not None:
                stream.credit = max(stream.credit, credit.credit)
                self._wake(stream)

    def open(self, number: int, request: worker_pb2.StreamRequest, credit: int) -> None:
        """Open a stream. If it is refused, its error is sent."""
        stream = _Stream(number, request, credit)
        with self._ready:
            if self._closed:
                return
            if number in self._streams:  # it would stay open until the worker ends
                raise ProtocolError(f"the sidecar has opened stream {number} again")
            if len(self._streams) >= _MAX_STREAMS:
                raise ProtocolError(f"the sidecar has opened more than {_MAX_STREAMS:,} streams")
            self._streams[number] = stream
        try:
            check_protocol(request.protocol, "the sidecar")
            check_version(request.digest_version)
            counters = self._open_streams.enter()
        except DistributedInputError as error:
            stream.error = error.with_traceback(None)  # it would keep these frames
            self._wake(stream)
            return
        stage = self._open_stage(request, counters, functools.partial(self._wake, stream))
        with self._ready:
            if self._streams.get(number) is stream:
                stream.stage, stream.counters = stage, counters
        if stream.stage is None:  # closed by another thread, which has not seen that it was counted
            stage.close()
            self._open_streams.leave(counters)
        self._wake(stream)

    def _close_stream(self, number: int) -> None:
        with self._ready:
            stream = self._streams.pop(number, None)
        if stream is not None and stream.stage is not None and stream.counters is not None:
            stream.stage.close()
            self._open_streams.leave(stream.counters)

    def fail_all(self, error: UnavailableError) -> None:
        """End all streams with an error."""
        with self._ready:
            streams = list(self._streams.values())
        for stream in streams:
            stream.error = stream.error or error
            self._wake(stream)

    def close(self) -> None:
        """Close all streams. `frames` ends."""
        with self._ready:
            self._closed = True
            numbers = list(self._streams)
            self._ready.notify_all()
        for number in numbers:
            self._close_stream(number)

    # Rows for the sidecar.

    def _wake(self, stream: _Stream) -> None:
        """Have the sender look whether a stream has rows, reports or an error."""
        with self._ready:
            if not stream.is_queued and self._streams.get(stream.number) is stream:
                stream.is_queued = True
                heapq.heappush(self._queue, (stream.order, next(self._numbers), stream))
                self._ready.notify()

    def frames(self) -> Iterator[Sequence[Frame]]:
        """Yield frames to be sent together, of about one block, until the connection is closed."""
        while (frames := self._next_frames()) is not None:
            if frames:
                ready = time.perf_counter()
                yield frames
                self._open_streams.record_stall(time.perf_counter() - ready)

    def _next_frames(self) -> list[Frame] | None:
        """Wait for a stream. Return what is needed first. None if the connection is closed."""
        frames: list[Frame] = []
        again: list[_Stream] = []
        size = 0
        with self._ready:
            while not self._queue and not self._closed:
                self._ready.wait()
        while size < BLOCK_BYTES and (stream := self._next_stream()) is not None:
            blocks, error = self._take(stream)
            found = list(_frames_of(stream.number, blocks, error))
            cost = sum(block.cost for block in blocks)
            # The sidecar counts blocks that are sent together as one.
            joined = sum(max(0, sum(one.rows > 0 for one in frame.blocks) - 1) for frame in found)
            stream.taken += cost - BLOCK_COST * joined
            size += cost
            frames += found
            if error is not None or (blocks and blocks[-1].last):
                self._close_stream(stream.number)
            elif blocks:
                again.append(stream)
        for stream in again:
            self._wake(stream)  # it may have more; others come first
        return None if self._closed else frames

    def _next_stream(self) -> _Stream | None:
        with self._ready:
            while self._queue:
                stream = heapq.heappop(self._queue)[2]
                stream.is_queued = False
                if self._streams.get(stream.number) is stream:
                    return stream
            return None

    def _take(self, stream: _Stream) -> tuple[Sequence[RowBlock], Exception | None]:
        """Return the next blocks of a stream, or the error that ends it."""
        if stream.error is not None or stream.stage is None:
            return (), stream.error
        stream.order = stream.read_at
        try:
            return list(stream.stage.next(stream.credit - stream.taken)), None
        except Exception as error:  # noqa: BLE001 - goes to the sidecar
            self._open_streams.record_failure(type(error).__name__)
            return (), error


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
