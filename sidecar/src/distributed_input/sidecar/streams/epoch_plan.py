"""The order in which the splits of one epoch are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.api.proto import types_pb2
from distributed_input.order import splits as assignment
from distributed_input.order.share import seed_of
from distributed_input.rows.elements import Column, ElementSpec

_LEAST_TURNS = 2


@dataclass(frozen=True)
class EpochPlan:
    """One epoch of a job, as one consumer reads it.

    Attributes:
        job: the job, complete.
        epoch: index of the epoch.
        seed: seed of the order of splits.
        columns: columns of a row.
        deal: splits of every partition, in order, including other consumers' partitions.
    """

    job: types_pb2.Job
    epoch: int
    seed: int
    columns: Sequence[Column]
    deal: Sequence[Sequence[int]]

    @classmethod
    def of_job(cls, job: types_pb2.Job, epoch: int, consumer: int) -> EpochPlan:
        """Return the plan of one consumer.

        Args:
            job: the job, complete.
            epoch: index of the epoch.
            consumer: index of the consumer. In PARALLEL_EPOCHS each one has its own order.
        """
        seed = seed_of(job, consumer)
        deal = assignment.deal(seed, epoch, job.num_splits, job.partitions)
        columns = ElementSpec.from_json(job.row_spec).columns
        return cls(job, epoch, seed, columns, deal)

    def key(self, split: int) -> int:
        """Return the key of a split in this epoch, by which a worker is chosen."""
        return (self.epoch << 32) ^ split

    def concurrent_keys(self, ordinal: int, workers: int) -> tuple[tuple[int, ...], ...]:
        """Return the keys of the splits that all partitions read together with `ordinal`.

        There is one tuple for each ordinal of a group. A group has at least one split for each
        worker, so that consecutive groups have an even load however many splits are open. It does
        not depend on that number, because consumers may differ in it.
        """
        turns = max(_LEAST_TURNS, -(-workers // len(self.deal)))
        first = ordinal - ordinal % turns
        return tuple(
            tuple(self.key(splits[at]) for splits in self.deal if at < len(splits))
            for at in range(first, first + turns)
        )
