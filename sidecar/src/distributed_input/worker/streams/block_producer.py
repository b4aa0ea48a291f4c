"""A running split whose blocks several streams read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.compute.task_queue import ComputeTask
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.dataset_usage import DatasetUsage, SplitKey
from distributed_input.worker.streams.running_split import RunningSplit
from distributed_input.worker.streams.shared_stream import SharedStream

_MAX_JOIN_SECONDS = 60.0  # for one block


@dataclass(eq=False)
class BlockProducer:
    """A running split, the window of its blocks that are kept, and its state.

    The caller of every method but `close` holds the lock of `SharedProducers`.

    Attributes:
        key: key of the split.
        split: the running split; its `next` may take long.
        window: the blocks that are kept.
        counters: counters of what was produced.
        usage: the jobs that read the dataset.
        streams: the streams that read here.
        task: the task that produces the next block; None if nothing does.
        running_since: monotonic time since which the next block is computed; None if it is not, or
            if it waits for a CPU.
        progress: latest progress report of the replay; None after the replay.
        state: latest saved state of the split, until all streams have it.
        state_row: index of the row behind those that were produced before the state.
        states: number of saved states.
        sent_row: index of the row behind those that were sent to any stream.
        waiting_since: monotonic time since which it waits for slower streams; None if it does not.
        has_timer: whether a timer will look whether it still waits.
        error: error of `split`, which ended it.
        prefix_differs: whether the replay produced other rows than before. Then the producer is not
            for other streams.
        removed: whether it is removed, so that what it still computes is not needed.
    """

    key: SplitKey
    split: RunningSplit
    window: BlockWindow
    counters: StreamCounters
    usage: DatasetUsage
    streams: list[SharedStream] = field(default_factory=list)
    task: ComputeTask | None = None
    running_since: float | None = None
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

    @property
    def lowest_row(self) -> int:
        """Return the lowest row that a stream needs; the next one to produce without streams."""
        return min((stream.row for stream in self.streams), default=self.window.head)

    def can_serve(self, stream: SharedStream) -> bool:
        """Return whether a stream can join, with a proof of the prefix that its request checks.

        Sets `stream.checked` if the request checks a prefix.
        """
        request = stream.request
        if not self.is_usable or not self.window.covers(stream.row):
            return False
        if not request.check_prefix:
            return True
        stream.checked = self.window.prefix(request.prefix_rows)
        if stream.checked is not None:
            return stream.prefix is None or stream.checked.matches(stream.known)
        # The digest of the rows before the first block will be known once that block is produced.
        return request.prefix_rows == stream.row == self.window.start

    def has_prefix_of(self, stream: SharedStream) -> bool:
        """Return whether a stream can continue here: its rows so far are this producer's."""
        if stream.prefix is None or not self.is_usable:
            return False
        return self.window.prefix(stream.row) == stream.prefix

    def next_report(self, stream: SharedStream) -> RowBlock | None:
        """Return a block without rows that the stream does not have yet, or None.

        It is a progress report of the replay, or a saved state.
        """
        # It may begin again at the first row, when it cannot continue from a state or an anchor.
        if self.progress is not None and self.progress.replayed != stream.replayed:
            stream.replayed = self.progress.replayed
            return self.progress
        state = self.state
        if state is not None and stream.states < self.states and self.state_row <= stream.row:
            stream.states = self.states
            self.drop_sent_state()
            return state
        return None

    def drop_sent_state(self) -> None:
        """Free the saved state if all streams have it. It may be large."""
        if all(stream.states == self.states for stream in self.streams):
            self.state = None

    def close(self) -> Sequence[ComputeTask]:
        """End the split, which is not needed any more. Without the lock: it may take long."""
        with contextlib.suppress(Exception):
            self.split.close()
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
