"""The rows of one partition in one epoch: its splits, one after the other, with read-ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.stalls import dataset_name
from distributed_input.order.repeated_splits import RepeatedSplits
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.stream_context import StreamContext


@dataclass(frozen=True)
class PartitionPosition:
    """A row of a partition: where a reader stands, and where another one can go on.

    Attributes:
        ordinal: index of the split that has the row.
        before: rows of the partition before that split.
        rows: rows of the partition before that row.
        prefix: first rows of that split, with a known digest, or None. A reader that starts here
            compares a replay with them; one that stands here has taken them.
        ended: whether the last row of the partition was taken.
    """

    ordinal: int = 0
    before: int = 0
    rows: int = 0
    prefix: Prefix | None = None
    ended: bool = False


class PartitionReader:
    """The rows of one partition in order. Every call needs the epoch's lock.

    Args:
        context: values that the streams of the epoch share.
        splits: the partition's splits, in order.
        start: where to begin.
        seen: rows that the partition is known to have.

    Attributes:
        ended: whether the last row was taken.
        rows: rows of the partition taken so far, including those before the start.
        first_ordinal: index of the split that was opened first.
        first_before: rows of the partition before that split.
        lengths: rows of its splits from `first_ordinal` on, as far as their ends were received.
    """

    def __init__(
        self,
        context: StreamContext,
        splits: Sequence[int],
        start: PartitionPosition,
        seen: int = 0,
    ) -> None:
        self.rows = start.rows
        self.first_ordinal = start.ordinal
        self.first_before = start.before
        self.lengths: list[int] = []
        self.ended = False
        self._context = context
        self._splits = splits
        self._read_ahead = 0
        self._ordinal = start.ordinal  # of the split that is read: the head
        self._before = start.before  # rows of the partition before the head
        self._skip = start.rows - start.before  # rows of the head already consumed
        self._total_replayed = 0  # of the splits before the head
        self._streams: deque[SplitStream] = deque()
        self._next = start.ordinal  # the next split to open
        self._seen_before = seen
        self._last_state: PartitionPosition | None = None  # when it was closed
        self._closed = False
        self._all_seen = False  # when it was closed
        self._start_prefix = start.prefix
        self._empty = 0  # splits without rows, one after the other
        self._open_more()

    def read_ahead(self, splits: int) -> None:
        """Keep `splits` splits open behind the one that is read, from now on."""
        self._read_ahead = splits
        if not (self.ended or self._closed):
            self._open_more()

    def next(self, rows: int) -> list[RowBlock]:
        """Return up to `rows` of the rows received so far, as views. Return [] when `ended`.

        Raises:
            DistributedInputError: a stream has failed.
        """
        taken: list[RowBlock] = []
        self._check_rows()
        while rows and not self.ended:
            if not self._streams:
                self.ended = True
                break
            head = self._streams[0]
            self._settle_start(head)
            blocks = head.next(rows)
            count = sum(block.rows for block in blocks)
            self.rows += count
            rows -= count
            taken += blocks
            if head.exhausted:
                self._next_split(head)
            elif rows:
                break
        return taken

    def _settle_start(self, head: SplitStream) -> None:
        """Open the splits behind the head once its first answer shows that the start lies in it."""
        if self._skip and head.opened and (head.total is None or head.total >= self._skip):
            self._skip = 0
            self._open_more()

    def _next_split(self, head: SplitStream) -> None:
        assert head.total is not None
        self._streams.popleft()
        self._total_replayed += head.total_replayed
        self.lengths.append(head.total)
        self._empty = 0 if head.total else self._empty + 1
        # An assumed start may lie behind this split's end.
        self._skip = max(0, self._skip - head.total)
        self._before += head.total
        self._ordinal += 1
        self._open_more()
        if self._streams:
            self._streams[0].grant()
        else:
            self.ended = True

    def _open_more(self) -> None:
        while self._next < len(self._splits) and len(self._streams) <= self._read_ahead:
            is_head = not self._streams and self._next == self._ordinal
            if self._skip and not is_head:
                return  # the row at which the next split begins is not known yet
            skip = self._skip if is_head else 0
            prefix = self._start_prefix if self._next == self.first_ordinal else None
            split = self._splits[self._next]
            self._streams.append(
                SplitStream(self._context, split, self._next, skip, prefix if skip else None)
            )
            self._next += 1

    @property
    def _has_no_rows(self) -> bool:
        """Whether all splits of a list that repeats were without rows."""
        return isinstance(self._splits, RepeatedSplits) and self._empty > self._splits.most_empty

    def _check_rows(self) -> None:
        """Raise DatasetFnError if the list repeats splits without rows."""
        if self._has_no_rows:
            source = self._context.plan.locate(self._splits[self._ordinal]).job.entry_point.source
            raise DatasetFnError(
                f"source {source} of the mixture has no rows in one of the partitions, so it cannot"
                " repeat. Give every split rows, use fewer spec.partitions, or set "
                "spec.mixture.onExhausted: Stop"
            )

    def locate(self) -> bool:
        """Return whether the start was found, or the partition's end before it.

        Raises:
            DatasetFnError: the list repeats splits without rows.
        """
        self._check_rows()
        while self._skip and not self.ended:
            if not self._streams:  # the partition has no split
                self.ended = True
                break
            head = self._streams[0]
            self._settle_start(head)
            if not self._skip:
                break
            if not head.exhausted:
                head.next(0)
                return False
            self._next_split(head)
        return True

    def pass_ended_splits(self) -> None:
        """Move behind splits of which no row is left, so that the partition's end becomes a fact.

        A partition may be opened at its last row. Other consumers then wait for its end, although
        this one may wait for them before it takes a row.
        """
        while not self._closed and not self.ended and not self._has_no_rows:
            if not self._streams:
                self.ended = True
                return
            head = self._streams[0]
            self._settle_start(head)
            if self._skip or not head.exhausted:
                return
            self._next_split(head)

    def forget_lengths(self, most: int) -> None:
        """Keep at most so many lengths of splits, those of the last ones."""
        before = self.lengths[: max(0, len(self.lengths) - most)]
        self.first_ordinal += len(before)
        self.first_before += sum(before)
        del self.lengths[: len(before)]

    @property
    def is_full(self) -> bool:
        """Whether a split that was opened ahead waits. Opening another one would not help."""
        return any(stream.is_full for stream in self._streams)

    @property
    def open_splits(self) -> int:
        """Number of open splits."""
        return len(self._streams)

    @property
    def total(self) -> int | None:
        """Rows of the whole partition, or None before it has ended."""
        return self._before if self.ended else None

    @property
    def rows_seen(self) -> int:
        """Rows that the partition has at least. It never decreases, because it is a fact."""
        seen = self._before
        for stream in self._streams:
            if not stream.opened:
                break
            seen += stream.received
            if stream.total is None:
                break
        return max(seen, self._seen_before)

    @property
    def all_seen(self) -> bool:
        """Whether `rows_seen` is all rows of the partition: the end of each split was received."""
        if self.ended or self._closed:
            return self.ended or self._all_seen
        return self._next == len(self._splits) and all(
            stream.total is not None for stream in self._streams
        )

    def state(self) -> PartitionPosition:
        """Return the row up to which the partition is taken."""
        if self._last_state is not None:
            return self._last_state
        prefix = self._streams[0].state() if self._streams else Prefix()
        return PartitionPosition(self._ordinal, self._before, self.rows, prefix, self.ended)

    @property
    def advanced_at(self) -> float:
        """Monotonic time at which a row of the head was last received or replayed."""
        return self._streams[0].advanced_at if self._streams else float("-inf")

    @property
    def head(self) -> str:
        """The split that is read and its worker, as text for people."""
        if not self._streams:
            return "no split"
        head = self._streams[0]
        at = self._context.plan.locate(head.split)
        return (
            f"split {at.split} of dataset {dataset_name(at.job)}, row {head.received}, "
            f"requested from worker {head.worker or '-'}"
        )

    @property
    def problem(self) -> str:
        """Why no row comes, as text for people, or "" if that is unknown."""
        return self._streams[0].problem if self._streams else ""

    @property
    def total_replayed(self) -> int:
        """Rows that workers have replayed for this partition."""
        return self._total_replayed + sum(stream.total_replayed for stream in self._streams)

    @property
    def replayed(self) -> int:
        """Rows that the present worker has replayed before the next row comes."""
        return self._streams[0].replayed if self._streams else 0

    def close(self, at: PartitionPosition | None = None) -> None:
        """Close all streams. The reader then stands where it does, or at an earlier row."""
        self._all_seen = self.all_seen
        self._seen_before, self._last_state = self.rows_seen, at or self.state()
        self._closed = True
        for stream in self._streams:
            stream.close()
        self._streams.clear()
