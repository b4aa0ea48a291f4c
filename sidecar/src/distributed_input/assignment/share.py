"""One consumer's share of a job's steps: how many rows, from which partitions, cut how.

Pure, like `assignment`, which it applies to a `Job` message.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.assignment import splits as assignment


@dataclass(frozen=True)
class Share:
    """What consumer `consumer` of `consumers` takes in a step.

    Attributes:
        partitions: those it owns, ascending.
        batch: rows it takes in a step.
        quota: rows of that from each of its partitions while all of them last.
        unit_rows: rows of a unit, which is what one replica gets; 1 for whole elements.
        units: units in a step.
        whole: elements pass through whole, so a "row" is an element.
    """

    consumer: int
    consumers: int
    partitions: tuple[int, ...]
    batch: int
    quota: int
    unit_rows: int
    units: int
    whole: bool


def share_of(job: types_pb2.Job, consumer: int, consumers: int, replicas: int = 1) -> Share:
    """The share of one consumer.

    Args:
        job: complete: `partitions` is set.
        consumer: index, 0 <= consumer < consumers.
        consumers: trainer processes.
        replicas: of this trainer; each gets an equal unit of every batch.

    Raises:
        ConfigError: numbers that do not fit, naming those that would.
    """
    whole = not job.global_batch_size
    any_order = job.order == types_pb2.ANY
    partitions = job.partitions
    rows = job.global_batch_size or partitions
    if job.mode == types_pb2.PARALLEL_EPOCHS:
        own = tuple(range(partitions))
        # Its order is this trainer's own affair, so no number has to divide another.
        batch = partitions if whole else _each(rows, consumers, "trainers")
    else:
        if consumers > partitions:
            raise ConfigError(
                f"{consumers} trainers share {partitions} partitions: each needs at least one; "
                f"set spec.partitions to {consumers} or more"
            )
        if not any_order:
            assignment.check_topology(rows, partitions, consumers)
        own = tuple(assignment.partitions_of(consumer, consumers, partitions))
        batch = len(own) if whole else _each(rows, consumers, "trainers")
    if whole:
        return Share(consumer, consumers, own, batch, 1, 1, batch, whole)
    unit = _each(batch, replicas, "replicas of a trainer")
    quota = max(1, batch // len(own))
    return Share(consumer, consumers, own, batch, quota, unit, replicas, whole)


def _each(rows: int, parts: int, name: str) -> int:
    if rows % parts:
        fitting = [d for d in assignment.divisors(rows) if d <= 4096]
        raise ConfigError(
            f"a batch of {rows} rows does not divide evenly among {parts} {name}: use a global "
            f"batch size that {parts} divides, or one of {fitting} {name}"
        )
    return rows // parts
