"""How many splits each partition opens behind the one that is read.

A partition delivers its splits one after the other. Splits that are opened ahead let more workers
compute at the same time. Each takes memory in the sidecar and in a worker. So the automatic number
is small, and increases only while rows are waited for and the workers could compute more splits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from distributed_input.api.proto import types_pb2
from distributed_input.api.sidecar_memory import useful_read_ahead

_STARVED_SHARE = 0.1


def automatic_read_ahead(
    splits: int, *, most: int, capacity: int, partitions: int, starved: bool
) -> int:
    """Return the number of splits that each partition opens ahead from now on.

    Law: the result is at most `most`, and at least 1 if `most` is. It increases only while starved,
    and then up to two open splits for each split that the workers can compute at the same time.

    Args:
        splits: the number until now.
        most: maximum, which memory and dataset set.
        capacity: number of splits that the workers can compute at the same time.
        partitions: number of partitions that all consumers read at the same time.
        starved: whether the steps waited for rows.
    """
    wanted = 2 * max(1, splits) if starved else splits
    return min(most, max(1, min(wanted, useful_read_ahead(capacity, partitions))))


@dataclass
class ReadAhead:
    """The number of splits that each partition opens ahead, and what it may become.

    Attributes:
        most: the maximum.
        automatic: whether the number follows the workers. Otherwise it is the maximum.
        partitions: number of partitions that all consumers read at the same time.
        splits: the number now.
    """

    most: int
    automatic: bool = False
    partitions: int = 1
    splits: int = field(init=False)

    def __post_init__(self) -> None:
        self.splits = min(1, self.most) if self.automatic else self.most

    def adapt(self, capacity: int, waited: float, seconds: float) -> None:
        """Set the number for the workers of now.

        Args:
            capacity: number of splits that the workers can compute at the same time.
            waited: seconds that the steps waited for rows which a further split could provide.
            seconds: duration of the steps.
        """
        if self.automatic:
            self.splits = automatic_read_ahead(
                self.splits,
                most=self.most,
                capacity=capacity,
                partitions=self.partitions,
                starved=waited > _STARVED_SHARE * seconds,
            )


@dataclass(frozen=True)
class UsefulWorkers:
    """How many workers can compute rows of one consumer at the same time.

    Attributes:
        number: the maximum number of its open splits.
        limit: what sets the maximum, and the field to change, as text for people.
    """

    number: int = 0
    limit: str = ""


def turns_of(job: types_pb2.Job) -> int:
    """Return the largest number of splits of one partition that are read in one epoch."""
    return 1 if job.infinite else -(-job.num_splits // job.partitions)


def useful_workers(
    job: types_pb2.Job, partitions: int, most: int, configured: int | None
) -> UsefulWorkers:
    """Return how many workers can compute rows of a consumer at the same time.

    Args:
        job: the job, complete.
        partitions: number of partitions that the consumer reads.
        most: number of splits that each of them opens ahead at most.
        configured: spec.sidecar.readAhead. The memory limit may allow fewer.
    """
    splits = min(job.num_splits, partitions * turns_of(job))
    streams = partitions * (1 + most)
    if streams < splits and most != configured:
        return UsefulWorkers(
            streams,
            "more open splits need more memory in the sidecar. Raise "
            "spec.sidecar.resources.limits.memory, or use more trainers",
        )
    if streams < splits:
        return UsefulWorkers(streams, f"spec.sidecar.readAhead is {configured}. Remove it")
    if job.infinite:
        limit = f"an endless dataset has one split for each of {job.partitions} partitions"
        return UsefulWorkers(splits, f"{limit}. Raise spec.partitions")
    return UsefulWorkers(splits, f"the dataset has {job.num_splits} splits. Raise spec.numSplits")
