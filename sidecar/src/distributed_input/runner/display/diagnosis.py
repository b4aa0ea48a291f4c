"""Why does a trainer wait? A pure function of two samples of a dispatcher's status.

The causes are tried in the order of `_causes`. Each has figures and a next step. What decides:

- A worker holds a permit while it makes rows, also while these wait for storage. Then it uses
  little CPU time. It may also lend more permits, because its CPUs are idle: `places` is above
  `permits`.
- Workers that hold few permits have nothing to do. Either few splits are open, or the rows that
  they have made are not fetched.
- If all CPUs of the machine are busy, every process of a local run waits for one. Then a
  slow sidecar cannot be told from a slow network.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distributed_input.api.stalls import FULL_QUEUES
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.format import plural
from distributed_input.runner.display.stats import (
    Consumer,
    StatusSample,
    TrainerWindow,
    Worker,
    consumer_name,
    dataset_failure,
    stalled_splits,
    trainer_window,
)

WAITS = 0.05
"""Share of its time from which a trainer counts as waiting."""
_BUSY = 0.7
"""Share of their permits from which workers count as busy."""
_RUNNING = 0.05
"""Least share of the time without waits from which a trainer's demand can be computed."""
_BUSY_HOST = 0.9
"""Share of the machine's CPUs from which processes wait for one."""
_WAITING_SHARE, _WAITING_CPUS = 0.3, 0.7
"""Use of CPUs below which the rows of busy workers wait: share of their permits, CPUs of a worker.
A Python function that computes uses one CPU, however many permits there are."""
_AFTER_ERROR = "Correct dataset_fn or its data, and start the training program again."
_FULL = 0.5
"""Share of the buffer from which it counts as filled."""


class Cause(enum.Enum):
    """What a trainer waits for. The values appear in the output."""

    NONE = "none"
    TRAINER = "trainer"
    SIDECAR = "sidecar"
    NETWORK = "network"
    WORKERS = "workers"
    DATASET = "dataset"
    STORAGE = "storage"
    HOST = "host"


@dataclass(frozen=True)
class Diagnosis:
    """Why one trainer waits, or that it does not."""

    trainer: str
    """job/index; empty: no trainer is connected."""
    cause: Cause
    text: str
    """What was observed, with figures."""
    next_step: str
    waits: float | None = None
    """Share of its time that it waited, 0 to 1. None: unknown."""
    rows_per_second: float | None = None


_Reason = tuple[Cause, str, str]
"""A cause, what was observed, and the next step."""


@dataclass(frozen=True)
class _WatchedTrainer:
    """One trainer between two samples."""

    now: Consumer
    window: TrainerWindow
    others: Sequence[Consumer]
    count: int
    """Number of trainers of the job."""
    useful: int
    """Number of splits that all trainers can have open, and so of CPUs that can help."""

    @property
    def demand(self) -> float | None:
        """Rows per second that it would read if it never waited. None: unknown."""
        rate, waits = self.window.rate, self.window.waits
        return None if rate is None or waits is None or 1 - waits < _RUNNING else rate / (1 - waits)


@dataclass(frozen=True)
class _ReadyWorkers:
    """The workers that accept streams, between two samples."""

    ready: Sequence[Worker]
    busy: float | None
    """Share of their permits that they held, 0 to 1. None: unknown."""
    rate: float | None
    """Rows per second that one worker makes while it holds all its permits."""
    cpus: float | None
    """CPUs that they used, as a share of their permits, 0 to 1. None: unknown."""

    @property
    def permits(self) -> int:
        return sum(one.parallelism for one in self.ready)

    @property
    def places(self) -> int:
        return sum(one.capacity or one.parallelism for one in self.ready)

    @property
    def rows_wait(self) -> bool:
        """Whether the rows that they make wait for something else than a CPU."""
        if self.places > self.permits:
            return True
        if self.cpus is None:
            return False
        each = self.cpus * self.permits / len(self.ready)
        return self.cpus < _WAITING_SHARE and each < _WAITING_CPUS

    @property
    def streams(self) -> int:
        return sum(one.open_streams for one in self.ready)

    @property
    def error(self) -> str:
        """Text about an error of the dataset. Empty: there was none in the last minutes."""
        for one in self.ready:
            if failure := dataset_failure(one):
                return f"An error of the last minutes: {failure}, worker {one.address}."
        return ""


def diagnose(before: StatusSample, after: StatusSample) -> list[Diagnosis]:
    """Return one diagnosis for each trainer, or one that no trainer is connected.

    Some seconds should be between the samples, because processes report once a second.
    """
    workers = _workers(before, after)
    if not after.consumers and workers.error:
        return [Diagnosis("", Cause.DATASET, workers.error, _AFTER_ERROR)]
    if not after.consumers:
        start = "Start the training program. It must call distributed_input.connect()."
        return [Diagnosis("", Cause.TRAINER, "No trainer is connected.", start)]
    busy = after.host.busy_since(before.host) if before.host and after.host else 0.0
    host = busy if busy >= _BUSY_HOST else None
    consumers = sorted(after.consumers, key=lambda one: (one.job, one.index))
    trainers = [_trainer(before, after, one) for one in consumers]
    return [
        Diagnosis(
            consumer_name(one.now),
            *next(_causes(one, workers, host)),
            waits=one.window.waits,
            rows_per_second=one.window.rate,
        )
        for one in trainers
    ]


def _trainer(before: StatusSample, after: StatusSample, now: Consumer) -> _WatchedTrainer:
    others = [one for one in after.consumers if one.job == now.job and one.index != now.index]
    useful = sum(one.useful_workers for one in after.consumers if not one.finished)
    count = max(now.count, 1 + len(others))
    return _WatchedTrainer(now, trainer_window(before, now), others, count, useful)


def _workers(before: StatusSample, after: StatusSample) -> _ReadyWorkers:
    ready = [one for one in after.workers if not one.draining]
    earlier = {one.worker_id: one for one in before.workers}
    rows, busy, permits, cpu = 0, 0.0, 0.0, 0.0
    for one in ready:
        then = earlier.get(one.worker_id, Worker())
        rows += one.rows - then.rows
        busy += one.busy_seconds - then.busy_seconds
        permits += one.permit_seconds - then.permit_seconds
        cpu += one.cpu_seconds - then.cpu_seconds
    each = sum(one.parallelism for one in ready) / len(ready) if ready else 0.0
    return _ReadyWorkers(
        ready,
        min(1.0, busy / permits) if permits > 0 else None,
        rows / busy * each if rows > 0 and busy > 0 else None,
        min(1.0, cpu / permits) if cpu > 0 and permits > 0 else None,
    )


def _causes(
    trainer: _WatchedTrainer, workers: _ReadyWorkers, host: float | None
) -> Iterator[_Reason]:
    """Yield the causes that apply, the most certain first. At least one applies.

    `host` is the share of the machine's CPUs in use, if all processes are on it and wait for CPUs.
    """
    yield from _not_reading(trainer, workers)
    if not workers.ready:
        yield (
            Cause.WORKERS,
            "No worker is registered.",
            "Start workers, or read the log of those that do not start.",
        )
    for worker in workers.ready:
        for text in stalled_splits(worker):
            yield (
                Cause.DATASET,
                f"No progress: {text}, on worker {worker.address}.",
                "Find out what dataset_fn does there, for example by running it alone: it may read "
                "a file that does not arrive, or compute for long.",
            )
    yield from _other_trainers(trainer)
    if trainer.window.waits is not None and trainer.window.waits < WAITS:
        yield (
            Cause.NONE,
            "The input is fast enough.",
            "To train faster, make the training step faster. More workers cannot help.",
        )
    if not trainer.now.batches:
        awaited = trainer.now.waiting_for or "its first rows"
        yield (
            Cause.DATASET,
            f"It has no batch yet. It waits for {awaited}.",
            "Workers set up the dataset. If this takes more than a minute, read the workers' logs.",
        )
    yield from _busy_workers(trainer, workers, host)
    yield from _idle_workers(trainer, workers, host)


def _not_reading(trainer: _WatchedTrainer, workers: _ReadyWorkers) -> Iterator[_Reason]:
    now = trainer.now
    if now.finished:
        yield (Cause.NONE, "It has finished.", "Nothing to do.")
    if workers.error and (now.no_trainer or not now.batches):
        yield (Cause.DATASET, workers.error, _AFTER_ERROR)
    if now.no_trainer:
        yield (
            Cause.TRAINER,
            "Its sidecar runs, but no program reads through it: none has called "
            "distributed_input.connect(), or it has not opened its dataset yet.",
            "Read the log of the trainer.",
        )
    reads_none = now.pauses or (now.batches and now.buffer_fill > 0 and not now.waiting_for)
    if trainer.window.waits is None and reads_none:
        yield (
            Cause.TRAINER,
            "It reads nothing, and does not wait for a batch: it computes a long step, compiles, "
            "evaluates, writes a checkpoint, or stands still.",
            "Read the log of the trainer.",
        )


def _other_trainers(trainer: _WatchedTrainer) -> Iterator[_Reason]:
    if "the other trainers" not in trainer.now.waiting_for:
        return
    awaited = f"It waits for {trainer.now.waiting_for}."
    missing = trainer.count - 1 - len(trainer.others)
    behind = min(trainer.others, key=lambda one: (one.epoch, one.batches), default=None)
    if missing > 0 or behind is None:
        yield (
            Cause.TRAINER,
            f"{awaited} {missing} of {trainer.count} trainers are not connected.",
            "Start them, or read their logs.",
        )
    else:
        yield (
            Cause.TRAINER,
            f"{awaited} {consumer_name(behind)} has read the least: "
            f"{plural(behind.batches, 'batch')} of epoch {behind.epoch}, and this trainer "
            f"{trainer.now.batches}.",
            "Find out why that trainer is slower: read its diagnosis and its log.",
        )


def _busy_workers(
    trainer: _WatchedTrainer, workers: _ReadyWorkers, host: float | None
) -> Iterator[_Reason]:
    if workers.busy is None or workers.busy < _BUSY:
        return
    number = len(workers.ready)
    busy = f"{plural(number, 'worker')} used {workers.busy:.0%} of {workers.permits} CPUs"
    if workers.rows_wait:
        if host is not None:
            yield _busy_host(host, "")
        used = "" if workers.cpus is None else f"they use {workers.cpus:.0%} of their CPUs, and "
        yield (
            Cause.STORAGE,
            f"Rows wait in the workers: {used}{workers.places} rows are made at the same time on "
            f"{workers.permits} CPUs.",
            "Check the latency of the storage, and read more at the same time: interleave with "
            "num_parallel_calls, or more workers.",
        )
    if 0 < trainer.useful <= workers.permits:
        limit = trainer.now.useful_limit or "raise spec.partitions or spec.sidecar.readAhead"
        yield (
            Cause.DATASET,
            f"{busy}, and more workers cannot help: at most {trainer.useful} splits are open.",
            f"What limits them: {limit}.",
        )
    if host is not None:
        yield (
            Cause.WORKERS,
            f"{busy}, and {host:.0%} of this machine's CPUs are in use.",
            "More workers on this machine cannot help. Make dataset_fn cheaper, stop other "
            "programs, or run the input in a cluster.",
        )
    yield (Cause.WORKERS, f"{busy}.", _more_workers(trainer, workers))


def _more_workers(trainer: _WatchedTrainer, workers: _ReadyWorkers) -> str:
    number = len(workers.ready)
    demand = None if trainer.demand is None else trainer.demand * trainer.count
    if demand is None or not workers.rate:
        return f"Use more workers, for example {2 * number}, and explain again."
    need = max(number + 1, math.ceil(demand / workers.rate))
    cpus = plural(workers.permits // number, "CPU")
    return (
        f"Without waiting, {plural(trainer.count, 'trainer')} would read "
        f"{formatting.rate(demand)} rows/s, and one worker makes {formatting.rate(workers.rate)} "
        f"rows/s: use {need} workers with {cpus} each, or make dataset_fn cheaper."
    )


def _idle_workers(
    trainer: _WatchedTrainer, workers: _ReadyWorkers, host: float | None
) -> Iterator[_Reason]:
    now = trainer.now
    busy = "" if workers.busy is None else f" The workers are {workers.busy:.0%} busy."
    has_few = workers.streams < workers.permits or now.useful_limit.startswith(FULL_QUEUES)
    if has_few and now.useful_limit:
        yield (
            Cause.DATASET,
            f"Open splits of the dataset: {workers.streams}. CPUs of workers: {workers.permits}."
            f"{busy}",
            f"What limits them: {now.useful_limit}.",
        )
    if host is not None:
        yield _busy_host(host, busy)
    if now.buffer_fill >= _FULL:
        yield (
            Cause.SIDECAR,
            f"Rows are ready: {now.buffer_fill:.0%} of the buffer is filled.{busy} The trainer "
            "waits while a batch is completed and copied.",
            "Raise spec.sidecar.buffer, so that more batches are ready, and the sidecar's CPUs.",
        )
    yield (
        Cause.NETWORK,
        f"Workers could make more rows than arrive. Open splits: {workers.streams}. Filled part of "
        f"the buffer: {now.buffer_fill:.0%}.{busy}",
        "Check the CPU limit of the sidecar (spec.sidecar.resources), whether other programs use "
        "the CPUs, and the network between workers and trainer. With spec.workers.placement: "
        "NearTrainers, they share nodes.",
    )


def _busy_host(host: float, busy: str) -> _Reason:
    return (
        Cause.HOST,
        f"{host:.0%} of this machine's CPUs are in use, so all processes wait for one.{busy}",
        "Stop other programs, use fewer workers, or run the input in a cluster.",
    )
