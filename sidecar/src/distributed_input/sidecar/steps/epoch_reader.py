"""The partitions that one consumer reads in one epoch, and the waits for their rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.order import mixture
from distributed_input.order.share import Share
from distributed_input.rows.blocks import RowBlock
from distributed_input.runtime import logs
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from distributed_input.sidecar.steps.row_source import RowSource, WaitingTrainer
from distributed_input.sidecar.streams.epoch_plan import EpochPlan
from distributed_input.sidecar.streams.partition_reader import (
    PartitionPosition,
    PartitionReader,
)
from distributed_input.sidecar.streams.read_ahead import ReadingTime
from distributed_input.sidecar.streams.stream_context import SourceStats, StreamContext

_log = logs.get("sidecar.reading")
_ADAPT_SECONDS = 0.5
_LOOK_SECONDS = 0.25  # at a stream that no row comes from: its worker may be unreachable
_MOST_LENGTHS = 64  # that facts about a list without end have: the rows before them are consumed
_REMEDY = (
    "Check the worker's log, and what the dataset reads at this row, for example a file or a "
    "service that does not respond. If the dataset needs more time, increase "
    "spec.sidecar.timeoutSeconds. Iterating again resumes at this row"
)


class EpochReader:
    """The readers of one epoch's partitions.

    All waits end with Cancelled once `cancel` is called.

    Args:
        source: where the rows come from.
        share: the consumer's share of the job.
        epoch: index of the epoch.
        trainer: the trainer that waits for the rows.

    Attributes:
        partitions: the reader of each partition that was opened, by partition.
        plan: order of the epoch's splits.
        cancelled: set by `cancel`.
        reported_rows: rows of all partitions in the facts that were last returned.
    """

    def __init__(
        self, source: RowSource, share: Share, epoch: int, trainer: WaitingTrainer
    ) -> None:
        self.source = source
        self.plan = EpochPlan.of_job(source.job, epoch, share.consumer)
        self.partitions: dict[int, PartitionReader] = {}
        self.cancelled = threading.Event()
        self.reported_rows = 0
        self._first_heartbeat = source.exchange.next_heartbeat
        self._adapted_at: float | None = None  # when the number of open splits was last set
        self._adapted_rows = 0  # received until then
        self._waited = self._waited_for_head = 0.0  # seconds since then
        self._trainer = trainer
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._partitions = len(share.partitions)
        names = [one.entry_point.source for one in source.job.sources]
        self._of_sources = [source.stats.sources.setdefault(one, SourceStats()) for one in names]
        self._context = StreamContext(
            self.plan,
            source.pool,
            source.stats,
            self._lock,
            self._arrived,
            source.timeout_seconds,
            source.queue_bytes(self._most_streams),
            share.quota,
            source.most_head_bytes,
        )

    def open(self, partition: int, start: PartitionPosition) -> None:
        """Read a partition from `start` on, instead of where it was opened before."""
        with self._lock:
            before = self.partitions.get(partition)
            if before is not None:
                before.close()
            splits = self.plan.deal[partition]
            reader = PartitionReader(
                self._context, splits, start, before.rows_seen if before else 0
            )
            if self._adapted_at is not None:
                reader.read_ahead(self.source.read_ahead.splits)
            self.partitions[partition] = reader

    def leave(self, partition: int, at: PartitionPosition) -> None:
        """Read no more of a partition, which stays where it was at `at`. Its facts stay."""
        with self._lock:
            self.partitions[partition].close(at)

    def read_ahead(self) -> None:
        """Open splits ahead of need, up to the number that is useful now.

        Call it after each step. The first rows would come later if workers had to prepare other
        splits at the same time.
        """
        now, began, ahead = time.monotonic(), self._adapted_at, self.source.read_ahead
        rows = self.source.stats.rows
        if began is None:
            ahead.start(self.source.pool.capacity)
        else:
            if now - began < _ADAPT_SECONDS:
                return
            splits = ahead.splits
            ahead.has_end = ahead.has_end or any(one.lengths for one in self.partitions.values())
            received = rows - self._adapted_rows
            last = ReadingTime(now - began, self._waited, received, self._waited_for_head)
            ahead.adapt(self.source.pool.capacity, last)
        self._adapted_at, self._adapted_rows = now, rows
        self._waited = self._waited_for_head = 0.0
        with self._lock:
            # Fewer splits ahead close no stream.
            streams = sum(reader.open_splits for reader in self.partitions.values())
            self._context.queue_bytes = self.source.queue_bytes(max(streams, self._most_streams))
            if began is not None and ahead.splits == splits:
                return
            for reader in self.partitions.values():
                reader.read_ahead(ahead.splits)

    @property
    def _most_streams(self) -> int:
        ahead = self.source.read_ahead
        # The first one may be opened later. Full queues do not shrink then.
        return self._partitions * (1 + max(ahead.splits, min(1, ahead.most)))

    def locate(self, partition: int) -> int | None:
        """Wait until the start of a partition is found.

        Returns:
            The total rows of the partition if it ends before the start, else None.
        """
        reader = self.partitions[partition]
        deadline = ProgressDeadline(self.source.timeout_seconds)
        with self._lock:
            while not reader.locate():
                what = f"split border before row {reader.rows} of partition {partition}"
                self._wait(what, reader, deadline)
            return reader.total

    def take(self, partition: int, rows: int) -> list[RowBlock]:
        """Wait for rows of a partition and return at most `rows`, or [] when it has ended."""
        reader = self.partitions[partition]
        deadline: ProgressDeadline | None = None  # mostly no wait is needed
        with self._lock:
            waited = self._waited + self._waited_for_head
            while True:
                taken = reader.next(rows)
                if taken or reader.ended:
                    if self._of_sources:
                        self._count(partition, taken, waited)
                    return taken
                deadline = deadline or ProgressDeadline(self.source.timeout_seconds)
                self._wait(f"rows of partition {partition}", reader, deadline)

    def _count(self, partition: int, taken: Sequence[RowBlock], before: float) -> None:
        """Count rows of a source, and the waits for them since there were `before` seconds."""
        stats = self._of_sources[partition // self.source.job.partitions]
        stats.rows += sum(block.rows for block in taken)
        stats.wait_seconds += self._waited + self._waited_for_head - before

    def _wait(self, what: str, reader: PartitionReader, deadline: ProgressDeadline) -> None:
        """Wait until a stream has received something, or send the units that are kept back.

        The lock is held. A replay that advances is progress: replaying a long split may take longer
        than `timeout_seconds`.

        Raises:
            UnavailableError: the deadline has passed.
            Cancelled: `cancel` was called.
        """
        replayed = reader.replayed
        what += f" (workers have replayed {replayed} rows before them)" if replayed else ""
        deadline.record_progress(reader.advanced_at)
        if deadline.has_passed:
            problem = reader.problem or "the worker is up but its dataset produces nothing"
            raise UnavailableError(
                f"no {what} arrived for {deadline.seconds:.0f} s (spec.sidecar.timeoutSeconds; "
                f"{reader.head}): {problem}. {_REMEDY}"
            )
        waited = deadline.report_due()
        if self._trainer.has_unsent or waited is not None:
            source = f"{reader.head}: {reader.problem or 'silent'}"
            self._lock.release()  # sending may block for as long as the trainer does not read
            try:
                self._trainer.flush(self.cancelled)
                if waited is not None:
                    self._report(what, waited, source)
            finally:
                self._lock.acquire()
            return  # rows may have come meanwhile
        waiting = self.source.stats.waiting
        waiting["rows"] = what
        began = time.monotonic()
        self._arrived.wait(_LOOK_SECONDS)
        waiting.pop("rows", None)
        if reader.is_full:
            self._waited_for_head += time.monotonic() - began
        else:
            self._waited += time.monotonic() - began
        if self.cancelled.is_set():
            raise Cancelled

    def wait_facts(self, what: str, deadline: ProgressDeadline) -> None:
        """Wait a short time for facts from the other consumers.

        The sidecar runs ahead of its trainer, and all trainers may pause for longer than
        `timeout_seconds`, for example to validate. So only the time counts in which the trainer
        waits.

        Raises:
            UnavailableError: the deadline has passed.
            OtherConsumerError: an error has ended the epoch of another consumer.
            LeftEpochError: another consumer reads a later epoch.
            Cancelled: `cancel` was called.
        """
        self._trainer.flush(self.cancelled)
        if not self._trainer.trainer_waits:
            deadline.record_progress(time.monotonic())
        exchange, epoch = self.source.exchange, self.plan.epoch
        exchange.check_others(epoch, self._first_heartbeat, deadline.without_progress)
        if deadline.has_passed:
            raise UnavailableError(
                f"no report of {what} arrived for {deadline.seconds:.0f} s "
                "(spec.sidecar.timeoutSeconds). Check that the other trainers and the dispatcher "
                "are running"
            )
        waited = deadline.report_due()
        if waited is not None:
            self._report(what, waited)
        waiting, facts = self.source.stats.waiting, self.source.facts
        waiting["facts"] = what
        exchange.request_heartbeat()
        with facts.changed:
            facts.changed.wait(0.2)
        waiting.pop("facts", None)
        if self.cancelled.is_set():
            raise Cancelled

    def _report(self, what: str, waited: float, source: str = "") -> None:
        """Log a long wait, and report it to the trainer."""
        _log.warning("still waiting", what=what, seconds=round(waited), source=source)
        self._trainer.report_wait(what, self.cancelled)

    @property
    def difference(self) -> str:
        """The first replay of the epoch that made other rows, as text for people, or ""."""
        return next(iter(self._context.differences), "")

    def positions(self) -> dict[int, PartitionPosition]:
        """Return the position of every open partition."""
        with self._lock:
            return {p: reader.state() for p, reader in self.partitions.items()}

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts about these partitions, for the other consumers."""
        with self._lock:
            for reader in self.partitions.values():
                reader.pass_ended_splits()
            if mixture.never_ends(self.source.job):
                for reader in self.partitions.values():
                    reader.forget_lengths(_MOST_LENGTHS)
            # What is left of a source may never be taken. The others need the end before that.
            drops = self.source.job.exhaustion == types_pb2.DROP_SOURCE
            facts = [
                dispatcher_pb2.PartitionFact(
                    partition=p,
                    epoch=self.plan.epoch,
                    split_rows=reader.lengths,
                    rows_seen=reader.rows_seen if reader.total is None else reader.total,
                    ended=reader.all_seen if drops else reader.ended,
                    first_ordinal=reader.first_ordinal,
                    first_rows=reader.first_before,
                    remade=reader.total_replayed,
                )
                for p, reader in self.partitions.items()
            ]
        self.reported_rows = sum(fact.rows_seen for fact in facts)
        return facts

    def cancel(self) -> None:
        """End all waits with Cancelled."""
        self.cancelled.set()
        with self._lock:
            self._arrived.notify_all()
        with self.source.facts.changed:
            self.source.facts.changed.notify_all()

    def close(self) -> None:
        """Close all streams. Facts and positions stay available."""
        with self._lock:
            for reader in self.partitions.values():
                reader.close()
