"""The partitions that one pass over an epoch reads, and the waits on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distributed_input.api.errors import UnavailableError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.assignment import splits as assignment
from distributed_input.assignment.share import Share
from distributed_input.runtime import logs
from distributed_input.sidecar.steps.facts import Facts
from distributed_input.sidecar.steps.progress_deadline import Patience
from distributed_input.sidecar.streams.partition import PartitionReader, Start
from distributed_input.sidecar.streams.pool import WorkerPool
from distributed_input.sidecar.streams.streams import Run, StreamContext, StreamStats

_log = logs.get("sidecar.reading")


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
        tell: the trainer, if it waits, what is waited for.
        trainer_waits: whether it does.

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
        tell: Callable[[str], None],
        trainer_waits: Callable[[], bool],
    ) -> None:
        self.source = source
        self._kept, self._flush, self._tell_trainer = kept, flush, tell
        self._trainer_waits = trainer_waits
        self.epoch = epoch
        self.readers: dict[int, PartitionReader] = {}
        self.cancelled = threading.Event()
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        job, seed = source.job, source.job.seed
        if job.mode == types_pb2.PARALLEL_EPOCHS:
            seed = mix(seed, share.consumer + 1)  # every consumer in an order of its own
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
        patience = Patience(self.source.timeout_seconds)
        with self._lock:
            while not reader.locate():
                where = f"split border before row {reader.rows} of partition {partition}"
                self._wait(where, [reader], patience)
            return reader.total

    def take(self, partition: int, rows: int) -> list[Run]:
        """Some rows of a partition, at most `rows`; none when it has ended."""
        reader = self.readers[partition]
        patience: Patience | None = None  # mostly the rows are here
        with self._lock:
            while True:
                runs = reader.take(rows)
                if runs or reader.ended:
                    return runs
                patience = patience or Patience(self.source.timeout_seconds)
                self._wait(f"rows of partition {partition}", [reader], patience)

    def take_any(self, rows: int) -> list[Run]:
        """Rows of whichever partition has some; none when all have ended."""
        patience: Patience | None = None
        with self._lock:
            while True:
                for reader in self.readers.values():
                    runs = reader.take(rows)
                    if runs:
                        return runs
                waited_for = [r for r in self.readers.values() if not r.ended]
                if not waited_for:
                    return []
                patience = patience or Patience(self.source.timeout_seconds)
                self._wait("rows of any partition", waited_for, patience)

    def _wait(self, what: str, readers: Sequence[PartitionReader], patience: Patience) -> None:
        """Wait for news of a stream, or send what was kept back; the lock is held.

        A replay that goes on is progress: making a long split's rows again may take longer than
        any wait for a row.

        Raises:
            UnavailableError: nothing has come for too long.
            Cancelled: nobody wants it any more.
        """
        again = sum(reader.replayed for reader in readers)
        what += f", behind {again} that are made again" if again else ""
        patience.advanced(max(reader.advanced_at for reader in readers))
        if patience.is_over:
            trouble = next((r.trouble for r in readers if r.trouble), "")
            trouble = trouble or "the worker lives and its dataset makes nothing; see its log"
            raise UnavailableError(
                f"no {what} came for {patience.seconds:.0f} s (spec.sidecar.timeoutSeconds; "
                f"{readers[0].source}): {trouble}. Iterating again goes on where this stopped"
            )
        waited = patience.is_due()
        if self._kept() or waited is not None:
            sources = [f"{reader.source}: {reader.trouble or 'silent'}" for reader in readers]
            self._lock.release()  # sending may take as long as the trainer does
            try:
                self._flush()
                if waited is not None:
                    self._tell(what, waited, sources)
            finally:
                self._lock.acquire()
            return  # there may be news meanwhile
        waiting = self.source.stats.waiting
        waiting["rows"] = what
        self._arrived.wait(1.0)
        waiting.pop("rows", None)
        if self.cancelled.is_set():
            raise Cancelled

    def wait_facts(self, what: str, patience: Patience) -> None:
        """Wait a moment for news of the other consumers.

        This runs ahead of the trainer, and theirs may all rest for longer than any wait, as to
        validate: the time counts in which ours asks for what we do not know.

        Raises:
            UnavailableError: there have been none for too long.
            Cancelled: nobody wants it any more.
        """
        self._flush()
        if not self._trainer_waits():
            patience.advanced(time.monotonic())
        if patience.is_over:
            raise UnavailableError(
                f"nothing was heard of {what} for {patience.seconds:.0f} s "
                "(spec.sidecar.timeoutSeconds): are they, and the dispatcher, running?"
            )
        waited = patience.is_due()
        if waited is not None:
            self._tell(what, waited)
        waiting, facts = self.source.stats.waiting, self.source.facts
        waiting["facts"] = what
        self.source.exchange()
        with facts.changed:
            facts.changed.wait(0.2)
        waiting.pop("facts", None)
        if self.cancelled.is_set():
            raise Cancelled

    def _tell(self, what: str, waited: float, sources: Sequence[str] = ()) -> None:
        """Say what is waited for, and to the trainer that somebody waits."""
        _log.warning("still waiting", what=what, seconds=round(waited), sources=list(sources))
        self._tell_trainer(what)

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
                    remade=reader.remade,
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
