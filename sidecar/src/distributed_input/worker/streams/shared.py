"""Several streams of the same rows feed from one running source.

Streams want the same rows where dataset, seed, epoch, split and batching are the same: those of
several jobs that read one dataset. Each reads at its own pace within a bounded window of blocks;
whoever needs the next block makes it, for all. Who falls behind the window, or asks for rows
before it, gets a source of its own, which others may share, and goes over to one ahead of it once
it has come as far. So sharing changes who makes a row, never which rows a stream gets.

A reader that is ahead waits for those behind it before it pushes rows out that they still want,
but only so long: see `_PATIENCE_SECONDS`. Blocks that all have passed are kept for a job that
comes a little later: where several jobs read the dataset, and in the first minute, when others may
be about to start. A job alone keeps nothing after that.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.rows.blocks import digest_of
from distributed_input.worker.streams.fair_semaphore import Turns
from distributed_input.worker.streams.reader import Reader, Step, as_sent, opening_of, rest_of
from distributed_input.worker.streams.readership import DatasetKey, Readership, SplitKey, keys
from distributed_input.worker.streams.stream import BLOCK_BYTES, Work, total
from distributed_input.worker.streams.window import Made, Window

_SPLIT_BYTES = 8 << 20  # of one split's window, at most
_PATIENCE_SECONDS = 10.0  # that leaders wait for laggards at most, however many wait at once,
_PATIENCE_SHARE = 0.02  # and so much of the time on the whole
_MASK = (1 << 64) - 1

Start = Callable[[worker_pb2.StreamRequest, Work], Generator[Made, None, None]]


@dataclass(eq=False)
class _Feed:
    """A running source, and what is kept of it."""

    key: SplitKey
    source: Generator[Made, None, None]
    window: Window
    work: Work
    readership: Readership
    changed: threading.Condition
    making: bool = False
    replay: Made | None = None  # how far it has come with rows that nobody is sent
    held: int = 0  # readers that wait for those behind them
    error: BaseException | None = None
    differs: bool = False  # from what was made before: not for others


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
        self._feeds: dict[SplitKey, list[_Feed]] = {}  # the oldest first
        self._idle: OrderedDict[_Feed, None] = OrderedDict()  # ended and kept, by age
        self._readerships: dict[DatasetKey, Readership] = {}
        self._busy = 0  # feeds with readers
        self._bytes = 0
        self._done = Work()  # of feeds that are gone
        self._patience, self._patience_at = _PATIENCE_SECONDS, time.monotonic()  # left, and when

    def blocks(self, request: worker_pb2.StreamRequest, work: Work) -> Iterator[bytes]:
        """The encoded blocks that answer a request; `work` counts what is sent.

        Raises:
            UnavailableError: rows made again are not those that were sent.
            Exception: what the source raises.
        """
        reader = Reader(request, request.start_row)
        dataset, key = keys(request)
        with self._lock:
            readership = self._readerships.setdefault(dataset, Readership())
            readership.enter(request.job.name)
            feed = self._join(key, readership, reader)
        try:
            while True:
                step = self._next(feed, reader)
                if step is None:
                    feed = self._elsewhere(feed, reader)
                    continue
                made = step.made
                if made.replayed:
                    if request.tell_replay:
                        yield made.data
                    continue
                rows = max(0, made.first_row + made.rows - step.row)
                work.rows += rows
                work.bytes += made.nbytes
                work.shared_rows += 0 if step.own else rows
                yield as_sent(step, request)
                if made.last:
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

    def _join(self, key: SplitKey, readership: Readership, reader: Reader) -> _Feed:
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

    def _fits(self, feed: _Feed, reader: Reader) -> bool:
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

    def _seat(self, feed: _Feed, reader: Reader) -> None:
        self._busy += not feed.window.readers
        self._idle.pop(feed, None)
        reader.joined = True
        feed.window.readers[id(reader)] = reader.row

    def _leave(self, feed: _Feed, reader: Reader) -> None:
        if feed.window.readers.pop(id(reader), None) is None:
            return
        self._release(feed)
        if feed.window.readers:
            return
        self._busy -= 1
        if feed.window.end is not None and not feed.differs:
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

    def _close(self, readership: Readership, job: str) -> None:
        """A stream of a job is over. What is kept for others goes when nobody comes for it."""
        readership.leave(job)
        for key in [key for key, one in self._readerships.items() if one.is_over()]:
            del self._readerships[key]
        for feed in [feed for feed in self._idle if not feed.readership.shared]:
            self._drop(feed)

    # Reading.

    def _elsewhere(self, feed: _Feed, reader: Reader) -> _Feed:
        """Where a reader goes on whose next row its feed has let go, or that another has ready."""
        with self._lock:
            self._leave(feed, reader)
            reader.replayed = 0
            if reader.begun:
                reader.request = rest_of(reader)
            return self._join(feed.key, feed.readership, reader)

    def _next(self, feed: _Feed, reader: Reader) -> Step | None:
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
                if feed.replay is not None and feed.replay.replayed > reader.replayed:
                    reader.replayed = feed.replay.replayed
                    return Step(feed.replay, reader.row, own=False)
                if feed.making:
                    feed.changed.wait(1.0)
                elif not self._hold(feed):
                    feed.making = True
                    break
        return self._make(feed, reader)

    def _is_ahead(self, feed: _Feed, reader: Reader) -> bool:
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
        if not self._is_full(feed):
            return False
        self._wait_out(0.0)
        if self._patience <= 0:
            return False
        began = time.monotonic()
        feed.held += 1
        feed.changed.wait(min(0.1, self._patience))
        feed.held -= 1
        self._wait_out(time.monotonic() - began)
        return True

    def _release(self, feed: _Feed) -> None:
        """Let one of those that are held make the next block, once there is room; the others wait
        for that. To wake all whenever a reader moves cost more than what they waited for.
        """
        if feed.held and not self._is_full(feed):
            feed.changed.notify()

    def _is_full(self, feed: _Feed) -> bool:
        return feed.window.is_full(self._allowance())

    def _wait_out(self, waited: float) -> None:
        """Bring the patience up to now: `waited` seconds of it are gone, the rest has grown.

        What others have waited at the same time counts once.
        """
        now = time.monotonic()
        since = now - self._patience_at
        earned = since * _PATIENCE_SHARE - min(waited, since)
        self._patience = min(_PATIENCE_SECONDS, self._patience + earned)
        self._patience_at = now

    def _make(self, feed: _Feed, reader: Reader) -> Step:
        try:
            with self._turns:
                made = next(feed.source)
            if made.last:
                feed.source.close()
        except BaseException as error:  # or those who wait for it would wait for ever
            with self._lock:
                feed.error, feed.making = error, False
                feed.changed.notify_all()
            raise
        with self._lock:
            feed.making, feed.differs = False, feed.differs or made.differs
            feed.replay = made if made.replayed else None
            if feed.replay is not None:
                reader.replayed = made.replayed
                feed.changed.notify_all()
                return Step(made, reader.row, own=True)
            self._bytes += len(made.data) if made.rows else 0
            feed.window.append(made)
            feed.changed.notify_all()
            return self._taken(feed, reader, made, own=True)

    def _taken(self, feed: _Feed, reader: Reader, made: Made, own: bool) -> Step:
        """Note that the reader has a block, and let go what nobody needs."""
        row, window, opening = reader.row, feed.window, b""
        if reader.joined:
            # Whatever its source was opened for: this reader's own rows come before these.
            before = window.digest(row)
            before = made.before if before is None else before
            if reader.begun and before != reader.digest:
                raise UnavailableError("rows that were made again differ: ask for them anew")
            if not reader.begun:
                reader.begun, reader.digest = True, before
                if not reader.leads:
                    opening = opening_of(reader)
            reader.joined = False
        reader.digest = (reader.digest + digest_of(made.digests[row - made.first_row :])) & _MASK
        reader.row = max(row, made.first_row + made.rows)
        window.readers[id(reader)] = reader.row
        self._fit(feed)
        self._release(feed)
        return Step(made, row, own, opening)

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
