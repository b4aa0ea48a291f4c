"""A partition's rows in one epoch: its splits, one after the other, read ahead once asked to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.rows.blocks import digest_of
from distributed_input.sidecar.streams.streams import Prefix, Run, SplitStream, StreamContext


@dataclass(frozen=True)
class Start:
    """Where to begin reading a partition.

    Attributes:
        ordinal: of the split to open first.
        before: rows of the partition before that split.
        rows: rows of the partition to leave out: those before are already consumed.
        prefix: digest of some first rows of that split, for the check; None where nobody knows.
    """

    ordinal: int = 0
    before: int = 0
    rows: int = 0
    prefix: Prefix | None = None


class PartitionReader:
    """Rows of one partition in order. Every call needs the epoch's lock.

    Attributes:
        ended: its last row has been taken.
        rows: rows of the partition taken so far, those before the start included.
        lengths: of its splits from `first_ordinal` on, as far as their ends have arrived.
    """

    def __init__(
        self,
        context: StreamContext,
        partition: int,
        splits: Sequence[int],
        start: Start,
    ) -> None:
        self.partition = partition
        self.rows = start.rows
        self.first_ordinal = start.ordinal
        self.first_before = start.before
        self.lengths: list[int] = []
        self.ended = False
        self._context = context
        self._splits = splits
        self._read_ahead = 0
        self._ordinal = start.ordinal  # of the stream at the head
        self._before = start.before
        self._digest = 0
        self._taken = False  # rows of the head split
        self._remade = 0  # for splits before the head
        self._digest_known = start.rows == start.before
        self._streams: deque[SplitStream] = deque()
        self._next = start.ordinal  # the next ordinal to open
        self._skip = start.rows - start.before  # rows of the head split already consumed
        self._prefix = start.prefix
        self._open_more()

    def read_ahead(self, splits: int) -> None:
        """From now on keep so many splits open behind the one that is read."""
        self._read_ahead = splits
        if not self.ended:
            self._open_more()

    def take(self, rows: int) -> list[Run]:
        """Up to `rows` rows that are here; fewer when they are not, none when `ended`.

        Raises:
            DistributedInputError: the stream can not go on.
        """
        runs: list[Run] = []
        while rows and not self.ended:
            if not self._streams:
                self.ended = True
                break
            head = self._streams[0]
            self._settle_start(head)
            got = head.take(rows)
            if got and not self._digest_known and head.start_digest is not None and not self._taken:
                self._digest, self._digest_known = head.start_digest, True
            self._taken = self._taken or bool(got)
            for run in got:
                self.rows += run.rows
                rows -= run.rows
                if self._digest_known:
                    digest = digest_of(run.block.digests[run.start : run.stop])
                    self._digest = (self._digest + digest) % (1 << 64)
            runs += got
            if head.exhausted:
                self._next_split(head)
            elif rows:
                break
        return runs

    def _settle_start(self, head: SplitStream) -> None:
        """The head's first answer shows that the start lies in it: splits behind may be opened."""
        if self._skip and head.opened and (head.total is None or head.total >= self._skip):
            self._skip = 0
            self._open_more()

    def _next_split(self, head: SplitStream) -> None:
        assert head.total is not None
        self._streams.popleft()
        self._remade += head.remade
        self.lengths.append(head.total)
        if head.total < self._skip:  # an assumed position lay behind this split's end
            self._skip -= head.total
        else:
            self._skip = 0
        self._before += head.total
        self._ordinal += 1
        self._digest, self._digest_known, self._taken = 0, not self._skip, False
        self._open_more()
        if not self._streams:
            self.ended = True

    def _open_more(self) -> None:
        while self._next < len(self._splits) and len(self._streams) <= self._read_ahead:
            at_start = not self._streams and self._next == self._ordinal
            if self._skip and not at_start:
                return  # where the next split begins is not known yet
            skip = self._skip if at_start else 0
            prefix = self._prefix if self._next == self.first_ordinal else None
            self._streams.append(
                SplitStream(
                    self._context,
                    self._splits[self._next],
                    self._next,
                    skip,
                    prefix if skip else None,
                )
            )
            self._next += 1

    def locate(self) -> bool:
        """Whether the start has been found: within the partition, or its end before it."""
        while self._skip and not self.ended:
            if not self._streams:  # it has no splits at all
                self.ended = True
                break
            head = self._streams[0]
            self._settle_start(head)
            if not self._skip:
                break
            if not head.exhausted:
                head.take(0)
                return False
            self._next_split(head)
        return True

    @property
    def total(self) -> int | None:
        """Rows of the whole partition, once it has ended."""
        return self._before if self.ended else None

    @property
    def rows_seen(self) -> int:
        """Rows that the partition is known to have at least."""
        seen = self._before
        for stream in self._streams:
            if not stream.opened:
                break
            seen += stream.received
            if stream.total is None:
                break
        return max(seen, 0)

    @property
    def position(self) -> tuple[int, int, int, int | None]:
        """(ordinal, rows before its split, rows of the split taken, digest of those)."""
        taken = self.rows - self._before
        return self._ordinal, self._before, taken, self._digest if self._digest_known else None

    @property
    def advanced_at(self) -> float:
        """When a row last came or was made again for this to go on; by time.monotonic()."""
        return self._streams[0].advanced_at if self._streams else float("-inf")

    @property
    def source(self) -> str:
        """The split that is read, and where, for people."""
        if not self._streams:
            return "no split"
        return f"split {self._streams[0].split}, asked of worker {self._streams[0].worker or '-'}"

    @property
    def trouble(self) -> str:
        """Why no row comes, for people; empty: nobody knows."""
        return self._streams[0].trouble if self._streams else ""

    @property
    def remade(self) -> int:
        """Rows made again so far, over all times."""
        return self._remade + sum(stream.remade for stream in self._streams)

    @property
    def replayed(self) -> int:
        """Rows that are made again before the next one comes, so far."""
        return self._streams[0].replayed if self._streams else 0

    def close(self) -> None:
        """Drop all streams."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
