"""Several streams of the same rows feed from one running source.

Streams want the same rows where dataset, seed, epoch, split and batching are the same: those of
several jobs that read one dataset. Each reads at its own pace within a bounded window of blocks;
whoever needs the next block makes it, for all. Who falls behind the window, or asks for rows
before it, gets a source of its own, which others may share, and goes over to one ahead of it once
it has come as far. So sharing changes who makes a row, never which rows a stream gets.

A reader that is ahead waits for those behind it before it pushes rows out that they still want,
but only so long: see `_PATIENCE_SECONDS`. Blocks that all have passed are kept for a job that
comes a little later, where several jobs read the dataset; a job alone keeps nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from distributed_input import blocks
from distributed_input.blocks import RowBlock, digest_of
from distributed_input.elements import ElementSpec
from distributed_input.errors import UnavailableError
from distributed_input.proto import types_pb2, worker_pb2
from distributed_input.runs import slice_run
from distributed_input.worker.node import NODE
from distributed_input.worker.stream import BLOCK_BYTES, Work, total
from distributed_input.worker.turns import Turns
from distributed_input.worker.window import Made, Window

_SPLIT_BYTES = 8 << 20  # of one split's window, at most
_PATIENCE_SECONDS = 2.0  # leaders wait for laggards at most, over all streams of this worker,
_PATIENCE_SHARE = 0.02  # and so much of the time on the whole
_LINGER_SECONDS = 10.0  # a job that has no stream open may be about to open its next
_NOT_OF_ROWS = ("name", "warnings", "epochs", "strict", "remainder", "order", "mode")
_MASK = (1 << 64) - 1

Start = Callable[[worker_pb2.StreamRequest, Work], Generator[Made, None, None]]


@dataclass
class _Readership:
    """The jobs that read one dataset: streams open by job, and when the last one closed."""

    open: Counter[str] = field(default_factory=Counter)
    closed: dict[str, float] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Several jobs read it."""
        return len(self.open.keys() | self.closed.keys()) > 1


@dataclass(eq=False)
class _Feed:
    """A running source, and what is kept of it."""

    key: bytes
    source: Generator[Made, None, None]
    window: Window
    work: Work
    readership: _Readership
    changed: threading.Condition
    making: bool = False
    error: BaseException | None = None
    differs: bool = False  # from what was made before: not for others


@dataclass(eq=False)
class _Reader:
    """A stream: where it is, and the digest of the rows before that once it has begun."""

    request: worker_pb2.StreamRequest
    row: int
    digest: int = 0
    begun: bool = False
    prefix: int | None = None  # digest of the rows that the request knows, where it joined
    leads: bool = False  # its source was opened for it, and checks that itself


@dataclass(frozen=True)
class _Step:
    """A reader's next block: from which row on, and how it comes by it."""

    made: Made
    row: int
    own: bool  # was made now
    opening: bytes = b""  # what the first block of a stream that joined says besides


class Shared:
    """The sources that run in this worker. Thread-safe.

    Args:
        start: opens a source; its first `next` may take long.
        turns: at the cores, for whoever makes something.
        limit: bytes that all windows together keep, besides one block each.
    """

    def __init__(self, start: Start, turns: Turns, limit: int) -> None:
        self._start, self._turns, self._limit = start, turns, limit
        self._lock = threading.Lock()
        self._feeds: dict[bytes, list[_Feed]] = {}  # the oldest first
        self._idle: OrderedDict[_Feed, None] = OrderedDict()  # ended and kept, by age
        self._readerships: dict[bytes, _Readership] = {}
        self._busy = 0  # feeds with readers
        self._bytes = 0
        self._done = Work()  # of feeds that are gone
        self._patience, self._patience_at = _PATIENCE_SECONDS, time.monotonic()

    def blocks(self, request: worker_pb2.StreamRequest, work: Work) -> Iterator[bytes]:
        """The encoded blocks that answer a request; `work` counts what is sent.

        Raises:
            UnavailableError: rows made again are not those that were sent.
            Exception: what the source raises.
        """
        reader = _Reader(request, request.start_row)
        dataset, key = _keys(request)
        with self._lock:
            readership = self._readerships.setdefault(dataset, _Readership())
            readership.open[request.job.name] += 1
            feed = self._join(key, readership, reader)
        try:
            while True:
                step = self._next(feed, reader)
                if step is None:
                    feed = self._elsewhere(feed, reader)
                    continue
                made = step.made
                rows = max(0, made.first_row + made.rows - step.row)
                work.rows += rows
                work.bytes += made.nbytes
                work.shared_rows += 0 if step.own else rows
                yield _as_sent(step, request)
                if not made.rows:
                    return
        finally:
            with self._lock:
                self._leave(feed, reader)
                self._close(readership, request.job.name)

    @property
    def nbytes(self) -> int:
        """Of all windows."""
        with self._lock:
            return self._bytes

    def totals(self) -> Work:
        """What sources have made, sent or not."""
        with self._lock:
            running = [feed.work for feeds in self._feeds.values() for feed in feeds]
            return total([self._done, *running])

    # Joining and leaving; the lock is held.

    def _join(self, key: bytes, readership: _Readership, reader: _Reader) -> _Feed:
        """A feed that has the reader's next row, or will have it; a new one where there is none."""
        request = reader.request
        for feed in self._feeds.get(key, ()):
            if self._fits(feed, reader):
                reader.leads = False
                self._seat(feed, reader)
                return feed
        work = Work()
        feed = _Feed(
            key,
            self._start(request, work),
            Window(reader.row),
            work,
            readership,
            threading.Condition(self._lock),
        )
        reader.leads = True
        self._feeds.setdefault(key, []).append(feed)
        self._seat(feed, reader)
        return feed

    def _fits(self, feed: _Feed, reader: _Reader) -> bool:
        """Whether a feed can serve the reader, and prove what the request wants to be proven."""
        window, request = feed.window, reader.request
        if feed.differs or feed.error is not None or not window.covers(reader.row):
            return False
        if not request.check_prefix:
            return True
        reader.prefix = window.digest(request.prefix_rows)
        if reader.prefix is not None:
            return not reader.begun or reader.prefix == request.prefix_digest
        # Of the rows before its first block the digest is known once that is made.
        return request.prefix_rows == reader.row == window.start

    def _seat(self, feed: _Feed, reader: _Reader) -> None:
        self._busy += not feed.window.readers
        self._idle.pop(feed, None)
        feed.window.readers[id(reader)] = reader.row

    def _leave(self, feed: _Feed, reader: _Reader) -> None:
        if feed.window.readers.pop(id(reader), None) is None:
            return
        feed.changed.notify_all()  # those ahead may have waited for it
        if feed.window.readers:
            return
        self._busy -= 1
        if feed.window.end is not None and not feed.differs and feed.readership.shared:
            self._idle[feed] = None
            self._fit(feed)
        else:
            self._drop(feed)

    def _drop(self, feed: _Feed) -> None:
        self._idle.pop(feed, None)
        self._bytes -= feed.window.nbytes
        self._done = total([self._done, feed.work])
        feeds = self._feeds[feed.key]
        feeds.remove(feed)
        if not feeds:
            del self._feeds[feed.key]

    def _close(self, readership: _Readership, job: str) -> None:
        """A stream of a job is over. What is kept for a job goes when nobody comes for it."""
        now = time.monotonic()
        readership.open[job] -= 1
        readership.closed[job] = now
        readership.open += Counter()  # drops zeros
        for key, one in list(self._readerships.items()):
            for name in [n for n, at in one.closed.items() if now - at > _LINGER_SECONDS]:
                del one.closed[name]
            if not one.open and not one.closed:
                del self._readerships[key]
        for feed in [feed for feed in self._idle if not feed.readership.shared]:
            self._drop(feed)

    # Reading.

    def _elsewhere(self, feed: _Feed, reader: _Reader) -> _Feed:
        """Where a reader goes on whose next row its feed has let go, or that another has ready."""
        with self._lock:
            self._leave(feed, reader)
            if reader.begun:
                reader.request = _rest(reader)
            return self._join(feed.key, feed.readership, reader)

    def _next(self, feed: _Feed, reader: _Reader) -> _Step | None:
        """The reader's next block; None: it is to go on elsewhere."""
        window = feed.window
        with self._lock:
            while True:
                made = window.at(reader.row)
                if made is not None:
                    return self._taken(feed, reader, made, own=False)
                if feed.error is not None:
                    raise feed.error
                if window.end is not None and reader.row >= window.head:
                    return self._taken(feed, reader, window.end, own=False)
                if reader.row < window.first or self._is_ahead(feed, reader):
                    return None
                if feed.making:
                    feed.changed.wait(1.0)
                elif not self._hold(feed):
                    feed.making = True
                    break
        return self._make(feed, reader)

    def _is_ahead(self, feed: _Feed, reader: _Reader) -> bool:
        """Whether an older feed has come as far: `_join` finds that one first."""
        feeds = self._feeds[feed.key]
        return (
            len(feeds) > 1
            and reader.begun
            and any(
                other.window.covers(reader.row)
                and not (other.differs or other.error)
                and other.window.digest(reader.row) == reader.digest
                for other in feeds[: feeds.index(feed)]
            )
        )

    def _hold(self, feed: _Feed) -> bool:
        """Wait a moment for those who still want what the next block pushes out; whether it did."""
        if not feed.window.is_full(self._allowance()):
            return False
        now = time.monotonic()
        earned = (now - self._patience_at) * _PATIENCE_SHARE
        self._patience = min(_PATIENCE_SECONDS, self._patience + earned)
        self._patience_at = now
        if self._patience <= 0:
            return False
        feed.changed.wait(min(0.1, self._patience))
        self._patience -= time.monotonic() - now
        return True

    def _make(self, feed: _Feed, reader: _Reader) -> _Step:
        try:
            with self._turns:
                made = next(feed.source)
            if not made.rows:
                feed.source.close()
        except BaseException as error:  # or those who wait for it would wait for ever
            with self._lock:
                feed.error, feed.making = error, False
                feed.changed.notify_all()
            raise
        with self._lock:
            feed.making, feed.differs = False, feed.differs or made.differs
            self._bytes += len(made.data) if made.rows else 0
            feed.window.append(made)
            feed.changed.notify_all()
            return self._taken(feed, reader, made, own=True)

    def _taken(self, feed: _Feed, reader: _Reader, made: Made, own: bool) -> _Step:
        """Note that the reader has a block, and let go what nobody needs."""
        row, window, opening = reader.row, feed.window, b""
        if reader.begun and made.differs:
            raise UnavailableError("rows that were made again differ: ask for them anew")
        if not reader.begun:
            before = window.digest(row)
            reader.begun, reader.digest = True, made.before if before is None else before
            if not reader.leads:
                opening = _opening(reader)
        reader.digest = (reader.digest + digest_of(made.digests[row - made.first_row :])) & _MASK
        reader.row = max(row, made.first_row + made.rows)
        window.readers[id(reader)] = reader.row
        self._fit(feed)
        if len(window.readers) > 1:
            feed.changed.notify_all()
        return _Step(made, row, own, opening)

    def _fit(self, feed: _Feed) -> None:
        """Keep to the limits."""
        before = feed.window.nbytes
        if not feed.readership.shared:
            feed.window.drop_read()
        feed.window.trim(self._allowance())
        self._bytes += feed.window.nbytes - before
        while self._bytes > self._limit and self._idle:
            self._drop(next(iter(self._idle)))

    def _allowance(self) -> int:
        """Bytes that one window may keep."""
        return max(BLOCK_BYTES, min(_SPLIT_BYTES, self._limit // max(1, self._busy)))


def _keys(request: worker_pb2.StreamRequest) -> tuple[bytes, bytes]:
    """What is the same for all splits of a dataset that are made alike, and for one of them."""
    job = types_pb2.Job()
    job.CopyFrom(request.job)
    for name in _NOT_OF_ROWS:
        job.ClearField(name)
    dataset = job.SerializeToString(deterministic=True) + b"%d" % request.seed
    return dataset, dataset + b"/%d/%d" % (request.epoch, request.split)


def _rest(reader: _Reader) -> worker_pb2.StreamRequest:
    """A request for what a reader has not got yet, which checks what it has."""
    request = worker_pb2.StreamRequest()
    request.CopyFrom(reader.request)
    request.start_row = request.prefix_rows = reader.row
    request.prefix_digest, request.check_prefix = reader.digest, reader.row > 0
    return request


def _opening(reader: _Reader) -> bytes:
    """The fields that `stream.split_blocks` has on a first block; later ones win where merged."""
    request = reader.request
    prefix = reader.digest if reader.prefix is None else reader.prefix
    return worker_pb2.Block(
        prefix_differs=request.check_prefix and prefix != request.prefix_digest,
        node=NODE,
        prefix_digest=reader.digest,
    ).SerializeToString()


def _as_sent(step: _Step, request: worker_pb2.StreamRequest) -> bytes:
    """The block's bytes from the reader's row on."""
    made, data = step.made, step.made.data
    if made.first_row < step.row < made.first_row + made.rows:
        block, skip = blocks.decode(data), step.row - made.first_row
        columns = ElementSpec.from_json(request.job.row_spec).columns
        rest = slice_run(columns, block.buffers, skip, made.rows)
        data = blocks.encode(
            RowBlock(step.row, made.rows - skip, tuple(rest), made.digests[skip:], node=block.node)
        )
    return data + step.opening if step.opening else data
