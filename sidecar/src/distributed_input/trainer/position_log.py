"""Positions of the running epoch, by the number of units that the loop has consumed.

TensorFlow prefetches, so the newest position that the sidecar sent is ahead of the training loop.
A checkpoint needs the position behind the last unit that the loop has consumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2

HISTORY_STEPS = 4096  # more steps than any prefetch runs ahead
_MOST_BYTES = 32 << 20  # those of a mixture of many sources are large
_MOST_STEPS = 1 << 40
_MOST_MIXED_STEPS = 50_000  # the sidecar adds up the rows of each


class PositionLog:
    """The positions behind the most recent steps of one epoch."""

    def __init__(self) -> None:
        # Serialized: a message would keep the whole packet that contained it.
        self._entries: deque[tuple[int, bytes]] = deque()
        self._bytes = 0

    def append(self, units: int, position: trainer_pb2.Position) -> None:
        """Save the position behind `units` units, more than were saved before."""
        data = position.SerializeToString()
        self._entries.append((units, data))
        self._bytes += len(data)
        while len(self._entries) > 1 and (
            len(self._entries) > HISTORY_STEPS or self._bytes > _MOST_BYTES
        ):
            self._bytes -= len(self._entries.popleft()[1])

    def at(
        self, units: int, units_per_step: int, epoch_start: trainer_pb2.Position
    ) -> trainer_pb2.Position:
        """Return the position behind `units` units, as a new message.

        It is the newest position saved at or before that count, advanced by the units since.

        Args:
            units: the number of units consumed in this epoch.
            units_per_step: the number of units in one step.
            epoch_start: the position at the start of the epoch, for a log without positions.

        Raises:
            PositionError: the position is older than the log.
        """
        for saved_units, data in reversed(self._entries):
            if saved_units <= units:
                position = trainer_pb2.Position.FromString(data)
                break
        else:
            # A log that starts with the first step has lost nothing.
            if self._entries and self._entries[0][0] > units_per_step:
                raise PositionError(
                    "the loop is so many steps behind the prefetched batches that their positions "
                    "are not kept: prefetch fewer batches"
                )
            saved_units, position = 0, trainer_pb2.Position()
            position.CopyFrom(epoch_start)
        advance(position, units - saved_units, units_per_step)
        return position


def parse(data: bytes) -> trainer_pb2.Position:
    """Return a saved position.

    Raises:
        PositionError: the bytes are not a position.
    """
    try:
        return trainer_pb2.Position.FromString(data)
    except DecodeError as error:
        raise PositionError(
            "the checkpoint has no valid position: the file is damaged, or something else has "
            "written it. Restore an earlier checkpoint, or start without one"
        ) from error


def advance(position: trainer_pb2.Position, units: int, units_per_step: int) -> None:
    """Move `position` forward by `units` units, in place."""
    if units:
        steps, position.extra_units = divmod(position.extra_units + units, units_per_step)
        position.step += steps
        position.units_per_step = units_per_step if position.extra_units else 0


def skip(position: trainer_pb2.Position, steps: int) -> None:
    """Move `position` forward by whole steps, in place.

    Raises:
        ConfigError: `steps` is not valid, the job has no batch size, or it is a mixture whose epoch
            ends: its end would be unknown.
        PositionError: the position shows no steps, it is within a step, or at the end of an epoch.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps <= _MOST_STEPS:
        raise ConfigError(f"skip: {steps!r} is not a number of steps. Use a whole number from 0 on")
    if not position.num_splits:
        raise PositionError(
            "skip: the input was neither read nor restored. Call it after the first step or after "
            "`restore`"
        )
    if not position.global_batch_size:
        raise ConfigError(
            "skip: the job has no batch size, so that a batch is less than a step. Set "
            "spec.batching.globalBatchSize"
        )
    if position.sources and steps > _MOST_MIXED_STEPS:
        raise ConfigError(
            f"skip: {steps} steps of a mixture, and at most {_MOST_MIXED_STEPS} are possible at"
            " once"
        )
    if position.sources and position.exhaustion != types_pb2.REPEAT:
        raise ConfigError("skip: a mixture needs spec.mixture.onExhausted: Repeat")
    if position.end:
        raise PositionError("skip: the epoch is over. Call it after the first step of an epoch")
    if position.extra_units:
        raise PositionError(
            "skip: the loop is within a step, because it has the batches of some replicas. Call it "
            "after those of all replicas"
        )
    position.step += steps


def behind(
    start: trainer_pb2.Position, units: Iterable[trainer_pb2.Unit], units_per_step: int
) -> trainer_pb2.Position:
    """Return the position behind `units` that follow the position `start`, as a new message."""
    position = trainer_pb2.Position()
    position.CopyFrom(start)
    for unit in units:
        if unit.HasField("after"):
            position.CopyFrom(unit.after)
        else:
            advance(position, 1, units_per_step)
    return position
