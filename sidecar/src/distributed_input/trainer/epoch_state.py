"""The state of the epoch that is being read, which survives the end of a sidecar."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from distributed_input.api.errors import DistributedInputError, FencedError, PositionError
from distributed_input.api.proto import trainer_pb2
from distributed_input.trainer.lineage import LineageLog
from distributed_input.trainer.position_log import PositionLog

OTHER_ITERATOR = (
    "another iterator of this input has begun its epoch: use one iterator at a time, or give the "
    "second iterator its own job: connect(..., job=...)"
)


class StepCounter(Protocol):
    """Counts the steps that a loop requests from its iterators."""

    @property
    def iterators(self) -> int:
        """The number of iterators that were created, which is the number of the newest one."""

    def requested(self, iterator: int) -> int:
        """Return the steps that were requested from one of the two newest iterators."""

    def invalidate(self) -> None:
        """Let the next step of the newest iterator fail: a position was restored."""


@dataclass
class EpochState:
    """The epoch that is being read.

    Attributes:
        generation: its number on this connection; every iterator has a new one.
        epoch: its number in the job.
        counter: counts the steps that the loop requests; None: nothing counts them.
        iterator: the number of its iterator, for `counter`.
        units: the number of units read.
        units_before: how many of `units` were read or queued before the current sidecar took over.
        started: an iterator reads it.
        ended: its end was read.
        stopped: a position was restored since it began.
        error: the error that ended it; a new iterator may continue.
        positions: the positions behind its steps.
        lineage: the rows of its units, if they name them.
    """

    generation: int
    epoch: int
    counter: StepCounter | None = None
    iterator: int = 0
    units: int = 0
    units_before: int = 0
    started: bool = False
    ended: bool = False
    stopped: bool = False
    error: DistributedInputError | None = None
    positions: PositionLog = field(default_factory=PositionLog, compare=False)
    lineage: LineageLog = field(default_factory=LineageLog, compare=False)

    def requested_units(self, replicas: int) -> int | None:
        """Return how many units the loop has requested; None without a counter.

        Each of its steps takes one unit for each replica. The steps of a job of whole elements
        have more units: one for each partition.
        """
        if self.counter is None:
            return None
        return self.counter.requested(self.iterator) * replicas

    def consumed_units(self, requested: int, replicas: int) -> int:
        """Return how many units a loop has consumed that has requested `requested` units.

        A loop that has requested more than was read has not got its last step, unless the epoch
        has ended. It may have lost some units of that step: the units of the other replicas.
        The last step of whole elements may have fewer units than replicas. It counts as a whole
        step, because other trainers may have got one.
        """
        if requested <= self.units:
            return requested
        part = self.units % replicas
        return self.units + (-part % replicas if self.ended else -part)

    def stop_for_restore(self) -> None:
        """Let iterators of this epoch raise PositionError, because a position was restored."""
        self.stopped = True
        if self.error is None:
            self.error = PositionError(
                "the position was restored while an iterator was running: create a new iterator "
                "with iter(dataset), or restore before iter(dataset)"
            )

    def check_error(self) -> None:
        """Raise the error that ended the epoch, if any."""
        if self.error is not None:
            raise without_traceback(self.error)


def require_current(epoch: EpochState | None, generation: int) -> EpochState:
    """Return `epoch` if it is the one that an iterator of `generation` reads.

    Raises:
        FencedError: another iterator has begun a newer epoch.
        PositionError: a position was restored, and no epoch has begun since.
    """
    if epoch is None or epoch.generation != generation:
        raise FencedError(OTHER_ITERATOR)
    if epoch.stopped:
        epoch.check_error()
    return epoch


def without_traceback(error: DistributedInputError) -> DistributedInputError:
    """Return the same error without its traceback, which would keep batches alive."""
    return type(error)(*error.args)


def epoch_after(
    last: EpochState | None, position: trainer_pb2.Position | None, used: int = 0
) -> EpochState:
    """Return the epoch that follows `last`, or the one that `position` belongs to."""
    generation = (last.generation if last is not None else used) + 1
    if position is None:
        return EpochState(generation, last.epoch + 1 if last is not None else 0)
    # The sidecar may have begun to read ahead: the next epoch, under the next generation.
    return EpochState(generation + 1, position.epoch + 1 if position.end else position.epoch)
