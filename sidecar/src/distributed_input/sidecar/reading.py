"""The partitions that one pass over an epoch reads, and the waits on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from distributed_input import assignment
from distributed_input.errors import UnavailableError
from distributed_input.proto import dispatcher_pb2, types_pb2
from distributed_input.share import Share
from distributed_input.sidecar.facts import Facts
from distributed_input.sidecar.partition import PartitionReader, Start
from distributed_input.sidecar.pool import WorkerPool
from distributed_input.sidecar.streams import Run, StreamContext, StreamStats


class Cancelled(Exception):
    """The epoch was dropped; nobody wants its rows."""


@dataclass(frozen=True)
class Source:
    """Where an epoch's rows come from."""

    job: types_pb2.Job
    pool: WorkerPool
    facts: Facts
    stats: StreamStats
    read_ahead: int
    timeout_seconds: float
    exchange: Callable[[], None]  # asks for facts to be told to, and heard from, others soon
    tell: Callable[[float, threading.Event], bool]  # tells them now; see `DispatcherLink.tell`


class Reading:
    """The readers of one epoch's partitions. Waits end with Cancelled once `cancel` is called.

    Args:
        source: of the rows.
        share: of the consumer.
        epoch: which.
        kept: whether something is kept back that should go out before a wait.
        flush: sends that.

    Attributes:
        readers: by partition, ascending.
        deal: the splits of every partition in this epoch.
        cancelled: set by `cancel`.
    """

    def __init__(
        self,
        source: Source,
        share: Share,
        epoch: int,
        kept: Callable[[], bool],
        flush: Callable[[], None],
    ) -> None:
        self.source = source
        self._kept, self._flush = kept, flush
        self.epoch = epoch
        self.readers: dict[int, PartitionReader] = {}
        self.cancelled = threading.Event()
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        job, seed = source.job, source.job.seed
        if job.mode == types_pb2.PARALLEL_EPOCHS:
            seed = assignment.mix(seed, share.consumer + 1)  # every consumer in an order of its own
        self.deal = assignment.deal(seed, epoch, job.num_splits, job.partitions)
        self._context = StreamContext(
            job,
            seed,
            epoch,
            source.pool,
            source.stats,
            self._lock,
            self._arrived,
            source.timeout_seconds,
            self.deal,
            1 + source.read_ahead,
        )

    def open(self, partition: int, start: Start) -> None:
        """Read a partition from `start` on; an earlier reader of it is closed."""
        with self._lock:
            if partition in self.readers:
                self.readers[partition].close()
            self.readers[partition] = PartitionReader(
                self._context, partition, self.deal[partition], start
            )

    def read_ahead(self) -> None:
        """Open splits ahead of need; not before the first rows are here, which would wait longer
        while workers set up what nobody needs yet.
        """
        with self._lock:
            for reader in self.readers.values():
                reader.read_ahead(self.source.read_ahead)

    def locate(self, partition: int) -> int | None:
        """Wait until the start of a partition is found; its total where that lies before it."""
        reader = self.readers[partition]
        with self._lock:
            while not reader.locate():
                self._wait(f"the split border before row {reader.rows} of partition {partition}")
            return reader.total

    def take(self, partition: int, rows: int) -> list[Run]:
        """Some rows of a partition, at most `rows`; none when it has ended."""
        reader = self.readers[partition]
        deadline = time.monotonic() + self.source.timeout_seconds
        with self._lock:
            while True:
                runs = reader.take(rows)
                if runs or reader.ended:
                    return runs
                self._check(deadline, f"no row of partition {partition} ({reader.source}) came")
                self._wait(f"rows of partition {partition}")

    def take_any(self, rows: int) -> list[Run]:
        """Rows of whichever partition has some; none when all have ended."""
        deadline = time.monotonic() + self.source.timeout_seconds
        with self._lock:
            while True:
                for reader in self.readers.values():
                    runs = reader.take(rows)
                    if runs:
                        return runs
                if all(reader.ended for reader in self.readers.values()):
                    return []
                self._check(deadline, "no row of any partition came")
                self._wait("rows of any partition")

    def _check(self, deadline: float, what: str) -> None:
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"{what} for {self.source.timeout_seconds:.0f} s (spec.sidecar.timeoutSeconds): "
                "the worker is alive and its dataset makes nothing; look at the worker's log"
            )

    def _wait(self, what: str) -> None:
        """Wait for news of a stream, or send what was kept back; the lock is held."""
        if self._kept():
            self._lock.release()  # sending may take as long as the trainer does
            try:
                self._flush()
            finally:
                self._lock.acquire()
            return  # there may be news meanwhile
        waiting = self.source.stats.waiting
        waiting["rows"] = what
        self._arrived.wait(1.0)
        waiting.pop("rows", None)
        if self.cancelled.is_set():
            raise Cancelled

    def wait_facts(self, what: str) -> None:
        """Wait a moment for news of the other consumers."""
        self._flush()
        waiting, facts = self.source.stats.waiting, self.source.facts
        waiting["facts"] = what
        self.source.exchange()
        with facts.changed:
            facts.changed.wait(0.2)
        waiting.pop("facts", None)
        if self.cancelled.is_set():
            raise Cancelled

    def positions(self) -> dict[int, tuple[int, int, int, int | None, bool]]:
        """By partition: ordinal, rows before its split, rows taken of it, their digest, ended."""
        with self._lock:
            return {p: (*reader.position, reader.ended) for p, reader in self.readers.items()}

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """What is known of these partitions, for the other consumers."""
        with self._lock:
            return [
                dispatcher_pb2.PartitionFact(
                    partition=p,
                    epoch=self.epoch,
                    split_rows=reader.lengths,
                    rows_seen=reader.rows_seen if reader.total is None else reader.total,
                    ended=reader.ended,
                    first_ordinal=reader.first_ordinal,
                    first_rows=reader.first_before,
                )
                for p, reader in self.readers.items()
            ]

    def cancel(self) -> None:
        """End all waits."""
        self.cancelled.set()
        with self._lock:
            self._arrived.notify_all()
        with self.source.facts.changed:
            self.source.facts.changed.notify_all()

    def close(self) -> None:
        """Drop all streams; what is known stays."""
        with self._lock:
            for reader in self.readers.values():
                reader.close()
