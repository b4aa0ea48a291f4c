"""The order in which the splits of one epoch are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.api.proto import types_pb2
from distributed_input.order import mixture
from distributed_input.order import splits as assignment
from distributed_input.order.jobs import set_run
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
        deal: splits of every partition, in order, including other consumers' partitions. In a
            mixture, those of every list. A split of a later round has a higher number.
        sources: the jobs of a mixture's sources, as workers run them.
    """

    job: types_pb2.Job
    epoch: int
    seed: int
    columns: Sequence[Column]
    deal: Sequence[Sequence[int]]
    sources: Sequence[types_pb2.Job] = ()

    @classmethod
    def of_job(cls, job: types_pb2.Job, epoch: int, consumer: int) -> EpochPlan:
        """Return the plan of one consumer.

        Args:
            job: the job, complete.
            epoch: index of the epoch.
            consumer: index of the consumer. In PARALLEL_EPOCHS each one has its own order.
        """
        seed = seed_of(job, consumer)
        columns = ElementSpec.from_json(job.row_spec).columns
        if not job.sources:
            deal = assignment.deal(seed, epoch, job.num_splits, job.partitions)
            return cls(job, epoch, seed, columns, deal)
        sources = []
        for one in job.sources:
            sources.append(types_pb2.Job())
            sources[-1].CopyFrom(one)
            sources[-1].name = job.name
            set_run(sources[-1], job)
        return cls(job, epoch, seed, columns, mixture.deal(job, epoch), sources)

    def locate(self, split: int) -> mixture.SourceSplit:
        """Return the job, the epoch and the number by which workers know a split."""
        if not self.sources:
            return mixture.SourceSplit(self.job, self.epoch, split)
        return mixture.source_split(self.job.num_splits, self.sources, self.epoch, split)

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
