"""The steps of one consumer in one epoch: which rows each takes, and the position after it."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import splits as assignment
from distributed_input.order.mixture import lists_of, log_from, without
from distributed_input.order.repeated_splits import SPLIT_MASK
from distributed_input.order.share import Share
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.steps import resume
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.mixed_steps import MixedSteps, log_of
from distributed_input.sidecar.steps.step_barrier import StepBarrier
from distributed_input.sidecar.streams.partition_reader import PartitionPosition


class EpochSteps:
    """The steps of an epoch, from its start or from a position on.

    Args:
        reader: reader of the epoch, whose partitions are open.
        share: the consumer's share of the job.
        base_step: step of the epoch from which this pass counts.
        base_rows: rows of each partition consumed at that step.
        log: the weights of a mixture; (): those of the job.
        anchors: split borders of a mixture's lists at or before the base; None: there are none.

    Attributes:
        barrier: the other consumers' progress.
        done: steps taken since the base.
    """

    def __init__(
        self,
        reader: EpochReader,
        share: Share,
        base_step: int,
        base_rows: Sequence[int],
        log: Sequence[types_pb2.Weights] = (),
        anchors: Mapping[int, trainer_pb2.Anchor] | None = None,
    ) -> None:
        self.mixed = None
        if reader.source.job.sources:
            self.mixed = MixedSteps(
                reader, share, log or reader.source.job.weights, base_step, base_rows, anchors
            )
        self.barrier = self.mixed or StepBarrier(reader, share, base_rows)
        self.done = 0
        self._starts: Mapping[int, PartitionPosition] = {}  # of the lists, before the next step
        self._short: set[int] = set()  # lists with too few rows for the next step
        self._reader = reader
        self._job = reader.source.job
        self._share = share
        self._base_step, self._base_rows = base_step, base_rows

    @classmethod
    def open(
        cls, reader: EpochReader, share: Share, position: trainer_pb2.Position | None
    ) -> EpochSteps:
        """Open the share's partitions at `position`, or at the start of the epoch.

        Raises:
            PositionError: the position belongs to another job.
            UnavailableError: workers or the other consumers did not answer in time.
        """
        if position is None:
            for p in share.partitions:
                reader.open(p, PartitionPosition())
            return cls(reader, share, 0, [0] * lists_of(reader.source.job))
        rows = resume.open_at(reader, share, position)
        anchors = dict(enumerate(position.anchors))
        log = log_of(position, reader.source.job)
        return cls(reader, share, position.step, rows, log, anchors)

    def next(self, rows: int) -> Iterator[RowBlock]:
        """Yield the next `rows` rows in the job's order, or fewer at the end of the epoch.

        No block crosses the border of a unit, which comes every `unit_rows` rows.
        """
        if self._drops_sources:
            self._starts, self._short = self._reader.positions(), set()
        turns = self._turns(rows)
        room = unit_rows = self._share.unit_rows
        got: int | None = None
        while True:
            try:
                partition, wanted = next(turns) if got is None else turns.send(got)
            except StopIteration:
                return
            got = 0
            while got < wanted:
                blocks = self._reader.take(partition, min(wanted - got, room))
                if not blocks:
                    break
                taken = sum(block.rows for block in blocks)
                got += taken
                room = room - taken or unit_rows
                yield from blocks

    def _turns(self, rows: int) -> Generator[tuple[int, int], int, None]:
        """Yield the turns that fill a batch; see `batch_turns`."""
        if self.mixed is None:
            live = [p for p, reader in self._reader.partitions.items() if not reader.ended]
            yield from assignment.batch_turns(live, rows, self._share.quota)
            return
        for one, wanted in self.mixed.turns(self.done):
            if (yield one, wanted) < wanted:
                if not self._drops_sources:
                    return  # the epoch ends before this step
                self._short.add(one)

    @property
    def _drops_sources(self) -> bool:
        return self.mixed is not None and self._job.exhaustion == types_pb2.DROP_SOURCE

    def ended_sources(self) -> set[int]:
        """Return the sources that have too few rows for the step that `next` has read.

        All consumers get the same answer, after they have exchanged facts. Only a mixture that goes
        on without such sources waits for it.
        """
        if self.mixed is None or not self._drops_sources:
            return set()
        self._short = self.mixed.short_lists(self.done, self._short)
        return {one // self._job.partitions for one in self._short}

    def leave_out(self, sources: Collection[int]) -> bool:
        """Go on without some sources of a mixture, with the step that `next` has read.

        Its rows are read again, with other weights. Return whether a source is left.
        """
        assert self.mixed is not None
        step = self._base_step + self.done
        log = without(self.mixed.log, step, sources)
        if not log:
            return False
        self.mixed.report_ended(self.done, self._short)
        rows, anchors = self.mixed.rows(self.done).tolist(), self.mixed.anchors(self.done)
        for one, _ in self.mixed.turns(self.done):
            if one // self._job.partitions in sources:
                self._reader.leave(one, self._starts[one])
            else:
                self._reader.open(one, self._starts[one])
        self._base_step, self._base_rows, self.done = step, rows, 0
        self.mixed = MixedSteps(self._reader, self._share, log, step, rows, anchors)
        self.barrier = self.mixed
        return True

    def close(self) -> None:
        """Close the streams of all partitions."""
        self._reader.close()

    def state(self, begun: int = 0) -> trainer_pb2.Position:
        """Return the position of all consumers after the steps done, as far as it is known.

        Args:
            begun: units of the next step that the trainer has got too.
        """
        job, share = self._job, self._share
        anchors = dict(self.barrier.anchors(self.done))
        prefixes = []
        for p, at in self._reader.positions().items():
            anchors[p] = trainer_pb2.Anchor(ordinal=at.ordinal, rows=at.before, ended=at.ended)
            if at.prefix is not None and at.prefix.rows and not at.ended:
                anchor = at.prefix.anchor or Prefix()
                prefixes.append(
                    trainer_pb2.Prefix(
                        partition=p,
                        split=self._reader.plan.deal[p][at.ordinal] & SPLIT_MASK,
                        rows=at.prefix.rows,
                        digest=at.prefix.digest,
                        anchor_rows=anchor.rows,
                        anchor_digest=anchor.digest,
                    )
                )
        base_step, base_rows = self._base_step, self._base_rows
        if self.mixed is not None:
            # The rows are known at each step, so that none has to be computed from the first one.
            base_step, base_rows = base_step + self.done, self.mixed.rows(self.done).tolist()
        position = trainer_pb2.Position(
            job=job.name,
            epoch=self._reader.plan.epoch,
            step=self._base_step + self.done,
            consumers=share.consumers,
            consumer=share.consumer,
            base_step=base_step,
            base_rows=base_rows if any(base_rows) else None,
            anchors=[anchors.get(p, trainer_pb2.Anchor()) for p in range(lists_of(job))],
            prefixes=prefixes,
            partitions=job.partitions,
            global_batch_size=job.global_batch_size,
            seed=job.seed,
            extra_units=begun,
            units_per_step=share.units if begun else 0,
        )
        if self.mixed is not None:
            position.weights.extend(log_from(base_step, self.mixed.log))
            position.job_weights.extend(job.weights)
            position.trainers_since = self._base_step
        return position
