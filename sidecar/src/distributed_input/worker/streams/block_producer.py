"""A running split whose blocks several streams read."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import dataclass

from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.counters import StreamCounters
from distributed_input.worker.streams.dataset_usage import DatasetUsage, SplitKey
from distributed_input.worker.streams.permit_queue import PermitRequest
from distributed_input.worker.streams.stream_cursor import StreamCursor

_MAX_JOIN_SECONDS = 60.0  # for one block


@dataclass(eq=False)
class BlockProducer:
    """A running split, the window of its blocks that are kept, and its state.

    The caller of every method holds the lock of `changed`.

    Attributes:
        key: key of the split.
        blocks: produces the next block; it may take long.
        window: the blocks that are kept.
        counters: counters of what was produced.
        usage: the jobs that read the dataset.
        changed: notified when a block or an error is available.
        request: the permit for the next block that a stream produces now; None if none does.
        running_since: monotonic time since which the next block is computed; None if no stream
            computes it, or if it waits for a CPU.
        progress: latest progress report of the replay; None after the replay.
        waiting: number of streams that wait for slower streams.
        error: error of `blocks`, which ended it.
        prefix_differs: whether the replay produced other rows than before. Then the producer is not
            for other streams.
    """

    key: SplitKey
    blocks: Generator[RowBlock, None, None]
    window: BlockWindow
    counters: StreamCounters
    usage: DatasetUsage
    changed: threading.Condition
    request: PermitRequest | None = None
    running_since: float | None = None
    progress: RowBlock | None = None
    waiting: int = 0
    error: BaseException | None = None
    prefix_differs: bool = False

    @property
    def is_usable(self) -> bool:
        """Return whether other streams may join.

        A producer whose next block takes very long may never return. A stream that is opened later
        then makes another attempt.
        """
        since = self.running_since
        is_stuck = since is not None and time.monotonic() - since > _MAX_JOIN_SECONDS
        return not self.prefix_differs and self.error is None and not is_stuck

    def can_serve(self, cursor: StreamCursor) -> bool:
        """Return whether a stream can join, with a proof of the prefix that its request checks.

        Sets `cursor.checked` if the request checks a prefix.
        """
        request = cursor.request
        if not self.is_usable or not self.window.covers(cursor.row):
            return False
        if not request.check_prefix:
            return True
        cursor.checked = self.window.prefix(request.prefix_rows)
        if cursor.checked is not None:
            return cursor.prefix is None or cursor.checked.matches(cursor.known)
        # The digest of the rows before the first block will be known once that block is produced.
        return request.prefix_rows == cursor.row == self.window.start

    def has_prefix_of(self, cursor: StreamCursor) -> bool:
        """Return whether a stream can continue here: its rows so far are this producer's."""
        if cursor.prefix is None or not self.is_usable:
            return False
        prefix = self.window.prefix(cursor.row)
        return prefix is not None and prefix.matches(cursor.prefix)

    def next_progress(self, cursor: StreamCursor) -> RowBlock | None:
        """Return the progress report of the replay if the stream does not have it yet."""
        if self.progress is None or self.progress.replayed <= cursor.replayed:
            return None
        cursor.replayed = self.progress.replayed
        return self.progress

    def fail(self, error: BaseException) -> None:
        """Record the error that ended `blocks`, and wake all streams."""
        self.error, self.request, self.running_since = error, None, None
        self.changed.notify_all()

    def publish(self, block: RowBlock) -> None:
        """Record a block or progress report that a stream produced, and wake all streams.

        A saved state is only for the stream that produced it.
        """
        self.request = self.running_since = None
        self.prefix_differs = self.prefix_differs or block.prefix_differs
        if not block.resume_token:
            self.progress = block if block.replayed else None
            if not block.replayed:
                self.window.append(block)
        self.changed.notify_all()

    def wake_waiting(self, limit: int) -> None:
        """Wake one of the streams that wait for slower streams if the window has room.

        The others wait for the block that it produces. Waking all of them at each step took more
        time than the waiting.
        """
        if self.waiting and not self.window.is_full(limit):
            self.changed.notify()
