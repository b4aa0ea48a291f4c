"""The state of the epoch that is being read, which survives the end of a sidecar."""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import DistributedInputError, FencedError


@dataclass
class EpochState:
    """The epoch that is being read.

    Attributes:
        generation: its number on this connection; every iterator has a new one.
        epoch: its number in the job.
        units: the number of units read.
        units_before: how many of `units` were read or queued before the current sidecar took over.
        started: an iterator reads it.
        ended: its end was read.
        error: the error that ended it; a new iterator may continue.
    """

    generation: int
    epoch: int
    units: int = 0
    units_before: int = 0
    started: bool = False
    ended: bool = False
    error: DistributedInputError | None = None

    def check_error(self) -> None:
        """Raise the error that ended the epoch, if any."""
        if self.error is not None:
            raise without_traceback(self.error)


def require_current(epoch: EpochState | None, generation: int) -> EpochState:
    """Return `epoch` if it is the one that an iterator of `generation` reads.

    Raises:
        FencedError: another iterator has begun a newer epoch.
    """
    if epoch is None or epoch.generation != generation:
        raise FencedError(
            "another iterator of this input has begun its epoch: use one iterator at a time, or "
            "give the second iterator its own job: connect(..., job=...)"
        )
    return epoch


def without_traceback(error: DistributedInputError) -> DistributedInputError:
    """Return the same error without its traceback, which would keep batches alive."""
    return type(error)(*error.args)
