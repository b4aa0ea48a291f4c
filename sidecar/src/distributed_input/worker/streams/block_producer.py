"""A running split whose blocks several streams read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.compute.task_queue import ComputeTask
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.dataset_usage import DatasetUsage, SplitKey
from distributed_input.worker.streams.stream_cursor import StreamCursor

_MAX_JOIN_SECONDS = 60.0  # for one block


class Blocks(Protocol):
    """The blocks of a split, such as a generator of them."""

    def __next__(self) -> RowBlock: ...

    def close(self) -> None:
        """End the split."""


@dataclass(eq=False)
class BlockProducer:
    """A running split, the window of its blocks that are kept, and its state.

    The caller of every method but `close` holds the lock of `SharedProducers`.

    Attributes:
        key: key of the split.
        blocks: produces the next block; it may take long.
        window: the blocks that are kept.
        counters: counters of what was produced.
        usage: the jobs that read the dataset.
        streams: the streams that read here.
        task: the task that produces the next block; None if nothing does.
        running_since: monotonic time since which the next block is computed; None if it is not, or
            if it waits for a CPU.
        thread: identifier of the thread that computes it.
        progress: latest progress report of the replay; None after the replay.
        state: latest saved state of the split, until all streams have it.
        state_row: index of the row behind those that were produced before the state.
        states: number of saved states.
        sent_row: index of the row behind those that were sent to any stream.
        waiting_since: monotonic time since which it waits for slower streams; None if it does not.
        has_timer: whether a timer will look whether it still waits.
        error: error of `blocks`, which ended it.
        prefix_differs: whether the replay produced other rows than before. Then the producer is not
            for other streams.
        removed: whether it is removed, so that what it still computes is not needed.
    """

    key: SplitKey
    blocks: Blocks
    window: BlockWindow
    counters: StreamCounters
    usage: DatasetUsage
    streams: list[StreamCursor] = field(default_factory=list)
    task: ComputeTask | None = None
    running_since: float | None = None
    thread: int = 0
    progress: RowBlock | None = None
    state: RowBlock | None = None
    state_row: int = 0
    states: int = 0
    sent_row: int = 0
    waiting_since: float | None = None
    has_timer: bool = False
    error: Exception | None = None
    prefix_differs: bool = False
    removed: bool = False

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

    def next_report(self, cursor: StreamCursor) -> RowBlock | None:
        """Return a block without rows that the stream does not have yet, or None.

        It is a progress report of the replay, or a saved state.
        """
        if self.progress is not None and self.progress.replayed > cursor.replayed:
            cursor.replayed = self.progress.replayed
            return self.progress
        if self.state is not None and cursor.states < self.states and self.state_row <= cursor.row:
            cursor.states = self.states
            return self.state
        return None

    def drop_sent_state(self) -> None:
        """Free the saved state if all streams have it. It may be large."""
        if all(stream.states == self.states for stream in self.streams):
            self.state = None

    def close(self) -> Sequence[ComputeTask]:
        """End the split, which is not needed any more. Without the lock: it may take long."""
        with contextlib.suppress(Exception):
            self.blocks.close()
        return ()

    def publish(self, block: RowBlock) -> None:
        """Record a block that was produced."""
        if block.resume_token:
            self.state, self.state_row = block, self.window.head
            self.states += 1
            return
        self.prefix_differs = self.prefix_differs or block.prefix_differs
        self.progress = block if block.replayed else None
        if not block.replayed:
            self.window.append(block)
