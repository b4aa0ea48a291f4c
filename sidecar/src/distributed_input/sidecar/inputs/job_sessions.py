"""The sessions of the trainers that read one job: at most one reads, older ones are fenced."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from distributed_input.api.errors import ConfigError, DistributedInputError, FencedError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.streams.read_ahead import UsefulWorkers
from distributed_input.sidecar.streams.stream_context import StreamStats


@dataclass(frozen=True)
class ConsumerStats:
    """Values that a consumer reports to the dispatcher; see `ConsumerHeartbeatRequest`."""

    epoch: int = 0
    rows: int = 0
    batches: int = 0
    bytes: int = 0
    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    buffer_fill: float = 0.0
    useful_workers: int = 0
    finished: bool = False
    waiting_for: str = ""
    mismatches: int = 0
    no_trainer: bool = False
    received: types_pb2.ReceivedTotals | None = None
    useful_limit: str = ""
    pauses: bool = False
    failed: str = ""
    sources: Sequence[types_pb2.SourceTotals] = ()
    weights: types_pb2.Weights | None = None

    def after(self, earlier: ConsumerStats) -> ConsumerStats:
        """Return these values with the counts of an earlier connection added."""
        return replace(
            self,
            rows=self.rows + earlier.rows,
            batches=self.batches + earlier.batches,
            bytes=self.bytes + earlier.bytes,
            wait_seconds=self.wait_seconds + earlier.wait_seconds,
            wall_seconds=self.wall_seconds + earlier.wall_seconds,
            received=self.received or earlier.received,
        )


class JobSession(Protocol):
    """The session of one connected trainer, or of all readers of a group.

    Attributes:
        number: number of its connection; a later one has a higher number.
        readers: number of processes that read the same batches.
    """

    number: int
    readers: int

    @property
    def useful(self) -> UsefulWorkers:
        """How many workers the trainer can use."""

    def stats(self) -> ConsumerStats:
        """Return what the trainer has received in this session."""

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts about the partitions that the session reads."""

    def fail(self, error: DistributedInputError) -> None:
        """Report an error that the trainer's iterator raises."""

    def end(self, error: DistributedInputError) -> None:
        """Report an error and stop serving the trainer."""

    def close(self) -> None:
        """Close the connection."""


class JobSessions:
    """The sessions of one job, and what they have delivered together. Thread-safe.

    Args:
        job_name: full name of the job.
        slots: slots that the sessions use.
        streams: counters of the job's streams.
    """

    def __init__(self, job_name: str, slots: SlotPool, streams: StreamStats) -> None:
        self._job_name = job_name
        self._slots = slots
        self._streams = streams
        self._current: JobSession | None = None
        self._reader: JobSession | None = None  # the one that has joined the run
        self._counted: list[JobSession] = []  # sessions that `_earlier` does not include
        self._earlier = ConsumerStats()  # of the sessions that are closed
        self._facts: Sequence[dispatcher_pb2.PartitionFact] = ()  # of the epoch before
        self._lock = threading.Lock()

    @property
    def current(self) -> JobSession | None:
        """The session that reads the job, or None."""
        return self._current

    @property
    def is_idle(self) -> bool:
        """Whether no trainer reads the job."""
        return self._current is None

    def attach(self, session: JobSession) -> None:
        """Make the session that connected last the current one, and end the other.

        Each session has a thread. After a trainer's restart, the first message of its ended process
        may be handled after that of the new process.

        Raises:
            ConfigError: another number of processes reads the job.
        """
        with self._lock:
            older, newer = self._current, session
            if older is not None and older.readers != session.readers:
                raise ConfigError(
                    f"input {self._job_name} is read by {older.readers} process(es) for each "
                    f"consumer, and this process claims {session.readers}: pass the same data_size "
                    "to connect() in all ranks of a run, and end the processes of an earlier run"
                )
            if older is not None and older.number > session.number:
                older, newer = session, older
            self._current = newer
            self._counted.append(session)
        if older is not None:
            older.end(
                FencedError(
                    f"input {self._job_name} was opened again: a job has one reader at a time. "
                    "Close the first reader, or give the second a job of its own: "
                    "connect(..., job=...)"
                )
            )

    def leave(self, session: JobSession, facts: Sequence[dispatcher_pb2.PartitionFact]) -> None:
        """Record that a session is no longer served, but keep the facts of its epoch."""
        self.keep_facts(session, facts)
        with self._lock:
            if self._current is session:
                self._current = None

    def detach(self, session: JobSession, facts: Sequence[dispatcher_pb2.PartitionFact]) -> None:
        """Remove a session whose trainer is gone, but keep its counts and its epoch's facts."""
        self.leave(session, facts)
        with self._lock:
            if session in self._counted:
                self._counted.remove(session)
                self._earlier = session.stats().after(self._earlier)

    def keep_facts(
        self, session: JobSession, facts: Sequence[dispatcher_pb2.PartitionFact]
    ) -> None:
        """Keep the facts of an epoch that is over in this session; others may still read it."""
        with self._lock:
            if self._current is session:
                self._facts = facts

    def join(self) -> None:
        """Count the current trainer as one that reads, now that its job has a run.

        Before, it may only have connected: it reads nothing of the run that the job had.
        """
        with self._lock:
            self._reader = self._current

    def drop_facts(self) -> None:
        """Drop the kept facts, because another run follows."""
        self._facts = ()

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return all facts for the other consumers."""
        session = self._current
        current = session.facts() if session is not None else []
        return [*self._facts, *current]

    def stats(self) -> ConsumerStats:
        """Return what the trainers of this consumer have received, in all sessions."""
        with self._lock:
            stats = self._earlier
            for session in self._counted:
                stats = session.stats().after(stats)
            useful = self._current.useful if self._current is not None else UsefulWorkers()
            reads = self._current is not None and self._current is self._reader
        return replace(
            stats,
            buffer_fill=self._slots.used / self._slots.size,
            useful_workers=useful.number,
            useful_limit=useful.limit,
            waiting_for=", ".join(sorted(set(self._streams.waiting.copy().values()))),
            mismatches=self._streams.mismatches,
            no_trainer=not reads,
            sources=[
                types_pb2.SourceTotals(source=name, rows=one.rows, wait_seconds=one.wait_seconds)
                for name, one in self._streams.sources.copy().items()
            ],
        )

    def refuse(self, error: DistributedInputError) -> None:
        """Report to the trainer that the dispatcher refuses this consumer. End it if fenced."""
        session = self._current
        if session is None:
            return
        if isinstance(error, FencedError):
            session.end(error)
        else:
            session.fail(error)

    def close(self) -> None:
        """Close the current session. The trainer then looks for the next sidecar."""
        session = self._current
        if session is not None:
            session.close()
