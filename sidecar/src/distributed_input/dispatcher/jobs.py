"""The registry of jobs. While a job is in use, its first registration holds the name. Pure.

A job is in use while an unfinished consumer sends heartbeats. It is also in use for a short time
after a registration, unless all its consumers have finished since.

Requests for a job that is not in use fail, so that trainers wait for the next registration and do
not join a run that is over. Another job may replace it. If the same job is registered again while
another trainer reads it, it keeps its facts. Otherwise a new run begins, without facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distributed_input.api.errors import JobConflictError, RetryableError, TerminalError
from distributed_input.api.proto.dispatcher_pb2 import ConsumerHeartbeatRequest
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.dispatcher.consumers import ConsumerRegistry
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.link.statuses import InvalidRequestError, NotFoundError
from distributed_input.order.facts import FactStore
from distributed_input.order.jobs import COPY

_INFORMATIVE = frozenset(
    "warnings read_amplification split_bytes split_bytes_at_most shard_policy run first_run"
    " varies".split()  # a function that keeps values may draw random numbers in its first call only
)
_MAX_CHARACTERS = 80
_MAX_CONTRADICTED = 100


@dataclass
class JobEntry:
    """A registered job.

    Attributes:
        registered: time of the last registration.
        used: time of the last registration or heartbeat of a consumer.
        facts: facts of the run.
        conflicts: number of reports that contradicted facts, in all runs.
        challenged: times of the first and last rejection of another job with its name.
        opening: times at which consumers opened the run, until their first heartbeat in it.
        contradicted: why runs have ended, by run.
    """

    job: Job
    consumers: ConsumerRegistry
    registered: float
    used: float
    facts: FactStore = field(default_factory=FactStore)
    conflicts: int = 0
    challenged: tuple[float, float] | None = None
    opening: dict[str, float] = field(default_factory=dict)
    contradicted: dict[str, str] = field(default_factory=dict)

    def begin_run(self, run: str, first_run: str) -> None:
        """Begin a run, which starts without the facts of the last one: they may be wrong."""
        self.job.run, self.job.first_run, self.facts = run, first_run or run, FactStore()
        self.opening.clear()

    def is_of_run(self, beat: ConsumerHeartbeatRequest) -> bool:
        """Return whether the facts of a consumer belong to this run."""
        return beat.run == self.job.run

    def is_read(self, now: float, other_than: str, hold: float) -> bool:
        """Return whether a trainer of another incarnation reads the job, or has just opened it."""
        self.opening = {key: at for key, at in self.opening.items() if now - at < hold}
        return bool(self.opening.keys() - {other_than}) or self.consumers.is_read(now, other_than)


class JobRegistry:
    """All registered jobs, by name.

    Args:
        limits: limits of the registry.
        dispatcher_id: unique to this start of the dispatcher, for the names of runs.
    """

    def __init__(self, limits: DispatcherLimits, dispatcher_id: str = "") -> None:
        self._limits = limits
        self._dispatcher_id = dispatcher_id
        self._runs = 0  # number of runs begun
        self._entries: dict[str, JobEntry] = {}

    def register(self, now: float, job: Job, incarnation: str = "") -> Job:
        """Register `job`; return the registered job, which may differ only in what it reports.

        It has the run that the consumer belongs to. A trainer that opens the job joins the run of
        those that read it, or else begins a new one. A consumer that has a run keeps it, unless
        others have begun a new one meanwhile.

        Args:
            now: time in seconds.
            job: the job. `run` is empty if a trainer opens it.
            incarnation: of the consumer that registers it.

        Raises:
            InvalidRequestError: a field is missing; names it.
            JobConflictError: consumers use another job of this name; names the different fields.
            RetryableError: the same, but those consumers may have ended. This is known within
                seconds.
            TerminalError: too many jobs are in use.
        """
        _check(job)
        self._check_copies(now, job)
        entry = self._entries.get(job.name)
        if entry is not None:
            differing = differences(entry.job, job)
            if not differing:
                is_new = job.run != entry.job.run
                if is_new and not entry.is_read(now, incarnation, self._limits.hold):
                    self._begin_run(now, entry)
                entry.opening[incarnation] = now
                entry.registered = entry.used = now
                entry.consumers.renew()
                return entry.job
            if self.in_use(now, entry):
                self._refuse(now, entry, differing)
        else:
            self._remove_idle(now)
        kept = Job()
        kept.CopyFrom(job)
        kept.first_run = job.first_run or job.run
        entry = JobEntry(kept, ConsumerRegistry(self._limits), now, now)
        if not job.run:
            self._begin_run(now, entry)
        entry.opening[incarnation] = now
        self._entries[job.name] = entry
        return kept

    def end_run(self, now: float, entry: JobEntry, contradiction: str) -> None:
        """End the run of all consumers, which contradict each other."""
        entry.contradicted[entry.job.run] = contradiction
        while len(entry.contradicted) > _MAX_CONTRADICTED:
            del entry.contradicted[next(iter(entry.contradicted))]
        self._begin_run(now, entry)

    def _begin_run(self, now: float, entry: JobEntry) -> None:
        """Begin a run of a job. It shares rows with the runs that read the same dataset now.

        So jobs of which one always reads share rows with the first of them: all jobs of a dataset
        must end before workers read files that have changed.
        """
        others = [
            other.job.first_run
            for other in self._entries.values()
            if other is not entry
            and other.job.dataset_id == entry.job.dataset_id
            and other.is_read(now, "", self._limits.hold)
        ]
        self._runs += 1
        run = f"{self._dispatcher_id}.{self._runs}"
        entry.begin_run(run, min(others, key=_age, default=""))

    def get(self, now: float, name: str, other_than: str = "") -> Job:
        """Return the job in use under `name`. Raise NotFoundError if there is none.

        Args:
            now: time in seconds.
            name: full name of the job.
            other_than: an incarnation whose use does not count. It joins the run of the job.
        """
        entry = self._entries.get(name)
        if entry is None or not self._in_use_without(now, entry, other_than):
            used = sorted(key for key, one in self._entries.items() if self.in_use(now, one))
            raise NotFoundError(
                f"job {name} is not registered (yet); in use: {', '.join(used) or 'none'}"
            )
        if other_than:
            entry.opening[other_than] = now
        return entry.job

    def entry(self, name: str) -> JobEntry | None:
        """Return the entry under `name`, in use or not."""
        return self._entries.get(name)

    def entries(self) -> list[JobEntry]:
        """Return all entries, in use or not."""
        return list(self._entries.values())

    def in_use(self, now: float, entry: JobEntry) -> bool:
        """Return whether a consumer holds the job, or it was registered recently."""
        if entry.consumers.last_held(now) is not None:
            return True
        return now - entry.registered < self._limits.hold and not entry.consumers.over

    def _in_use_without(self, now: float, entry: JobEntry, other_than: str) -> bool:
        if other_than:
            return entry.is_read(now, other_than, self._limits.hold)
        return self.in_use(now, entry)

    def forget(self, now: float) -> None:
        """Remove jobs that have not been used for a long time."""
        for name, entry in list(self._entries.items()):
            if now - entry.used > self._limits.forget and not self.in_use(now, entry):
                del self._entries[name]

    def _refuse(self, now: float, entry: JobEntry, differing: list[str]) -> None:
        """Raise a terminal error if consumers sent heartbeats well after the first attempt."""
        first, last = entry.challenged or (now, now)
        if now - last > self._limits.hold:
            first = now
        entry.challenged = (first, now)
        held = entry.consumers.last_held(now)
        text = (
            f"job {entry.job.name} is already registered and differs in: {'; '.join(differing)}. "
            "All trainers of a job must have the same dataset and settings. To change them, stop "
            "the running trainers, or use another name"
        )
        if held is not None and held > first + 2 * self._limits.heartbeat:
            raise JobConflictError(text)
        raise RetryableError(f"{text}. (Waiting for the running trainers to end)")

    def _check_copies(self, now: float, job: Job) -> None:
        """Refuse a job unless those that must read the same rows for other trainers are equal.

        Raises as `register`.
        """
        base = COPY.sub("", job.name)
        for name, entry in self._entries.items():
            if name != job.name and COPY.sub("", name) == base and self.in_use(now, entry):
                named = Job()
                named.CopyFrom(job)
                named.name = name
                if differing := differences(entry.job, named):
                    self._refuse(now, entry, differing)

    def _remove_idle(self, now: float) -> None:
        if len(self._entries) < self._limits.jobs:
            return
        idle = [entry for entry in self._entries.values() if not self.in_use(now, entry)]
        if not idle:
            raise TerminalError(f"more than {self._limits.jobs} jobs are in use: stop some of them")
        del self._entries[min(idle, key=lambda entry: entry.used).job.name]


def _age(run: str) -> tuple[str, int, str]:
    """Return a key that sorts the runs of a dispatcher by their numbers."""
    dispatcher_id, _, number = run.rpartition(".")
    return dispatcher_id, len(number), number


def differences(registered: Job, other: Job) -> list[str]:
    """Return the fields in which two jobs differ, as "name: old -> new"."""
    return [
        f"{field.name}: {_field_text(registered, field)} -> {_field_text(other, field)}"
        if field.name != "definitions"
        else "definitions: the dataset's files or code have changed"
        for field in Job.DESCRIPTOR.fields
        if field.name not in _INFORMATIVE
        and getattr(registered, field.name) != getattr(other, field.name)
    ]


def _field_text(job: Job, field: Any) -> str:
    value = getattr(job, field.name)
    if field.enum_type is not None and value in field.enum_type.values_by_number:
        return str(field.enum_type.values_by_number[value].name)
    text = " ".join(str(value).split()) or "(empty)"
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


def _check(job: Job) -> None:
    if not 0 < len(job.name) <= 512:
        raise InvalidRequestError("job.name: must have 1 to 512 characters")
    for name in ("dataset_id", "num_splits", "partitions"):
        if not getattr(job, name):
            raise InvalidRequestError(
                f"job.{name}: must be set; a worker's Describe completes a job"
            )
