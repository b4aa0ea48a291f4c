"""The dispatcher's state. Pure, with the time as an argument. Not thread-safe, see `service`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distributed_input.api import protocol
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.dispatcher_pb2 import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    ConsumerInfo,
    PartitionFact,
    StatusResponse,
    WorkerHeartbeatRequest,
    WorkerHeartbeatResponse,
)
from distributed_input.dispatcher import consumers
from distributed_input.dispatcher.datasets import DatasetStore
from distributed_input.dispatcher.jobs import JobEntry, JobRegistry
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.skipped import SkipLedger
from distributed_input.dispatcher.workers import WorkerRegistry
from distributed_input.link.statuses import InvalidRequestError
from distributed_input.order import mixture
from distributed_input.runtime import metrics

_MAX_ROWS = 1 << 62


@dataclass(frozen=True)
class ConsumerAnswer:
    """The response to a consumer, and contradictions to log."""

    response: ConsumerHeartbeatResponse
    conflicts: list[str]


class DispatcherState:
    """Workers, jobs with their consumers and facts, and datasets. Times in seconds.

    Args:
        dispatcher_id: unique to this start of the dispatcher.
        started: the time now.
        limits: limits of the registries.
    """

    def __init__(self, dispatcher_id: str, started: float, limits: DispatcherLimits) -> None:
        self.dispatcher_id = dispatcher_id
        self.limits = limits
        self.workers = WorkerRegistry(limits)
        self.jobs = JobRegistry(limits, dispatcher_id)
        self.datasets = DatasetStore(limits.dataset_bytes)
        self.skipped = SkipLedger()
        self._started = started
        self._joined: dict[str, str] = {}  # job by incarnation, of consumers that hold an index

    def worker_beat(self, now: float, beat: WorkerHeartbeatRequest) -> WorkerHeartbeatResponse:
        """Record a worker's heartbeat. Raise ProtocolError, or as `WorkerRegistry.beat`."""
        protocol.check_protocol(beat.protocol, f"worker {beat.worker_id} at {beat.address}")
        self.workers.beat(now, beat)
        self.skipped.add(beat.skipped)
        return WorkerHeartbeatResponse(
            dispatcher_id=self.dispatcher_id, interval_seconds=self.limits.heartbeat
        )

    def consumer_beat(self, now: float, beat: ConsumerHeartbeatRequest) -> ConsumerAnswer:
        """Record a consumer's heartbeat. Without a job, the response only has the workers.

        Raises ProtocolError, or as `ConsumerRegistry.beat` and `check_fact`.
        """
        who = f"the sidecar of consumer {beat.index} of job {beat.job}"
        protocol.check_protocol(beat.protocol, who)
        consumers.check(beat)
        response = ConsumerHeartbeatResponse(
            dispatcher_id=self.dispatcher_id,
            workers=self.workers.usable_from(now, beat.pod),
            interval_seconds=self.limits.heartbeat,
        )
        self._leave_other(beat)
        entry = self.jobs.entry(beat.job)
        if entry is None:
            response.job_unknown = bool(beat.job)
            return ConsumerAnswer(response, [])
        return ConsumerAnswer(response, self._join(now, entry, beat, response))

    def status(self, now: float, max_skipped: int = 0) -> StatusResponse:
        """Return the live workers and consumers, the jobs in use, and the last skipped records."""
        response = StatusResponse(
            dispatcher_id=self.dispatcher_id,
            uptime_seconds=now - self._started,
            workers=self.workers.live(now),
            skipped=self.skipped.latest(max_skipped),
            skipped_records=self.skipped.count,
        )
        for entry in self.jobs.entries():
            live = entry.consumers.live(now)
            if live or self.jobs.in_use(now, entry):
                response.jobs.append(entry.job)
            response.consumers.extend(
                ConsumerInfo(last=consumer.last, age_seconds=now - consumer.received)
                for consumer in live
            )
        return response

    def datasets_in_use(self, now: float) -> set[str]:
        """Return the ids of the datasets of jobs in use."""
        entries = self.jobs.entries()
        return {entry.job.dataset_id for entry in entries if self.jobs.in_use(now, entry)}

    def expire(self, now: float) -> None:
        """Remove expired workers and consumers, and unused jobs. Call it periodically."""
        self.workers.expire(now)
        self.jobs.forget(now)
        live = {c.last.incarnation for e in self.jobs.entries() for c in e.consumers.live(now)}
        self._joined = {key: job for key, job in self._joined.items() if key in live}

    def samples(self, now: float) -> Iterator[metrics.Sample]:
        """Yield the metrics."""
        live = self.workers.live(now)
        draining = sum(worker.draining for worker in live)
        for state, count in (("serving", len(live) - draining), ("draining", draining)):
            yield metrics.sample(metrics.DISPATCHER_WORKERS, count, state=state)
        yield metrics.sample(metrics.DISPATCHER_WORKER_LOSSES, self.workers.losses)
        age = self.workers.oldest_heartbeat(now)
        yield metrics.sample(metrics.DISPATCHER_HEARTBEAT_AGE_SECONDS, age, kind="worker")
        yield metrics.sample(metrics.DISPATCHER_SKIPPED_RECORDS, self.skipped.count)
        yield metrics.sample(metrics.DISPATCHER_DATASETS, self.datasets.count)
        yield metrics.sample(metrics.DISPATCHER_DATASET_BYTES, self.datasets.size)
        entries = self.jobs.entries()
        yield metrics.sample(metrics.DISPATCHER_JOBS, len(entries))
        for entry in entries:
            yield from _job_samples(now, entry)

    def _leave_other(self, beat: ConsumerHeartbeatRequest) -> None:
        before = self._joined.get(beat.incarnation)
        if before is not None and before != beat.job:
            entry = self.jobs.entry(before)
            if entry is not None:
                entry.consumers.release(beat.incarnation)
                entry.opening.pop(beat.incarnation, None)

    def _join(
        self,
        now: float,
        entry: JobEntry,
        beat: ConsumerHeartbeatRequest,
        response: ConsumerHeartbeatResponse,
    ) -> list[str]:
        reason = entry.consumers.beat(now, beat)
        if reason is not None:
            response.fenced, response.fenced_by = True, reason
            return []
        self._joined[beat.incarnation] = beat.job
        entry.used = now
        if beat.run in entry.contradicted:
            response.contradiction = entry.contradicted[beat.run]
            return []
        response.run = entry.job.run
        if not entry.is_of_run(beat):
            return []  # a trainer that reads joins this run with its next heartbeat
        entry.opening.pop(beat.incarnation, None)
        if entry.job.mode == types_pb2.PARALLEL_EPOCHS:
            return []  # each consumer has its own order, so there are no shared facts
        lowest, highest = entry.consumers.epochs()
        oldest = lowest - 1  # a consumer may still be at the end of the epoch before
        facts = [fact for fact in beat.facts if oldest <= fact.epoch <= highest + 1]
        for fact in facts:
            check_fact(fact, entry.job)
        conflicts = entry.facts.merge(facts)
        names = [one.entry_point.source for one in entry.job.sources]
        drops = entry.job.exhaustion == types_pb2.DROP_SOURCE
        if dispute := entry.consumers.dispute(beat, names, drops=drops):
            conflicts.append(dispute)
        if conflicts:
            entry.conflicts += len(conflicts)
            self.jobs.end_run(now, entry, conflicts[0])
            response.contradiction = conflicts[0]
            return conflicts
        entry.facts.forget(oldest, self.limits.fact_epochs)
        if mixture.never_ends(entry.job):
            entry.facts.trim(mixture.MOST_BORDERS)
        others = entry.facts.messages(beat.epoch - 1, lambda p: p % beat.count != beat.index)
        response.facts.extend(others)
        response.failed_epoch, response.failed = entry.consumers.failure(
            beat, entry.facts, mixture.lists_of(entry.job)
        )
        return conflicts


def check_fact(fact: PartitionFact, job: types_pb2.Job) -> None:
    """Raise InvalidRequestError, which names the field, if a job has no such partition or split."""
    if fact.partition >= mixture.lists_of(job):
        raise InvalidRequestError(
            f"facts.partition: {fact.partition}, but the job has {mixture.lists_of(job)} partitions"
        )
    if not mixture.never_ends(job) and fact.first_ordinal + len(fact.split_rows) > job.num_splits:
        raise InvalidRequestError(
            f"facts.split_rows: {fact.first_ordinal} + {len(fact.split_rows)} splits in a "
            f"partition, but the job has {job.num_splits} splits"
        )
    if fact.first_rows + sum(fact.split_rows) > _MAX_ROWS or fact.rows_seen > _MAX_ROWS:
        raise InvalidRequestError("facts: a partition has at most 2**62 rows")


def _job_samples(now: float, entry: JobEntry) -> Iterator[metrics.Sample]:
    name = entry.job.name
    yield metrics.sample(metrics.DISPATCHER_CONSUMERS, len(entry.consumers.live(now)), job=name)
    yield metrics.sample(metrics.DISPATCHER_CONSUMER_LOSSES, entry.consumers.losses, job=name)
    yield metrics.sample(metrics.DISPATCHER_FENCED, entry.consumers.fenced, job=name)
    yield metrics.sample(metrics.DISPATCHER_FACT_CONFLICTS, entry.conflicts, job=name)
