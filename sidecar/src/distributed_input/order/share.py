"""One consumer's share of a job's steps: the number of rows, their partitions, and their units.

Pure functions, which apply `splits` to a `Job` message.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import ConfigError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.order import splits
from distributed_input.order.mixture import lists_of


@dataclass(frozen=True)
class Share:
    """What consumer `consumer` of `consumers` takes in a step.

    Attributes:
        partitions: the partitions that it owns, ascending; in a mixture, its lists of splits.
        batch: rows that it takes in a step.
        quota: rows from each of its partitions per step, until a partition ends.
        unit_rows: rows of a unit, which one replica gets; 1 for whole elements.
        units: units in a step.
        whole: elements are delivered whole, so a "row" is an element.
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
    """Return the share of one consumer.

    Laws: except in PARALLEL_EPOCHS, the shares of all consumers own every partition exactly once.
    If the job has a batch size, `units * unit_rows == batch` for each consumer, and the batches
    of all consumers add up to the global batch.

    Args:
        job: complete: `partitions` is set.
        consumer: index, 0 <= consumer < consumers.
        consumers: trainer processes.
        replicas: replicas of this trainer. Each gets an equal unit of every batch.

    Raises:
        ConfigError: the numbers are not divisible. The message has numbers that are.
    """
    whole = not job.global_batch_size
    partitions = job.partitions
    rows = job.global_batch_size or partitions
    if job.mode == types_pb2.PARALLEL_EPOCHS:
        own = tuple(range(partitions))
        # Each trainer has its own order, so its partitions need not be divisible.
        batch = partitions if whole else _each(rows, consumers, "trainers")
    else:
        if consumers > partitions:
            raise ConfigError(
                f"spec.partitions: {consumers} trainers cannot share {partitions} partitions: "
                f"each needs at least one. Set it to {consumers} or more"
            )
        splits.check_topology(rows, partitions, consumers)
        own = tuple(splits.partitions_of(consumer, consumers, lists_of(job)))
        batch = len(own) if whole else _each(rows, consumers, "trainers")
    if whole:
        return Share(consumer, consumers, own, batch, 1, 1, batch, whole)
    unit = _each(batch, replicas, "replicas of a trainer")
    quota = max(1, batch * max(1, len(job.sources)) // len(own))
    return Share(consumer, consumers, own, batch, quota, unit, replicas, whole)


def seed_of(job: types_pb2.Job, consumer: int) -> int:
    """Return the seed of the order of splits. In PARALLEL_EPOCHS each consumer has its own."""
    return mix(job.seed, consumer + 1) if job.mode == types_pb2.PARALLEL_EPOCHS else job.seed


def are_divided(job: types_pb2.Job) -> bool:
    """Return whether a trainer divides each element among its replicas: a step has one element.

    As in TensorFlow: elements of a tf.data.Dataset are global batches, and elements of a function's
    dataset are for one replica each. A job with a batch size has its rows divided before.
    """
    return not job.global_batch_size and bool(job.shard_policy)


def loop_units(job: types_pb2.Job, replicas: int) -> int:
    """Return the number of units in one step of the training loop: what one `get_next` returns.

    Args:
        job: the job.
        replicas: replicas of this trainer.
    """
    return 1 if are_divided(job) else max(1, replicas)


def _each(rows: int, parts: int, name: str) -> int:
    if rows % parts:
        fitting = [d for d in splits.divisors(rows) if d <= 4096]
        raise ConfigError(
            f"{parts} {name} cannot divide a batch of {rows} rows. Use a global batch size that is "
            f"a multiple of {parts}, or one of {fitting} {name}"
        )
    return rows // parts
