"""An epoch belongs to one iterator, and keeps the error that ended it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.api.proto.trainer_pb2 import Position
from distributed_input.trainer.epoch_state import (
    EpochState,
    epoch_after,
    require_current,
    without_traceback,
)


def test_an_error_is_raised_again_without_its_traceback() -> None:
    try:
        raise ConfigError("first")
    except ConfigError as error:
        copy = without_traceback(error)
        assert copy.__traceback__ is None
        assert (type(copy), str(copy)) == (ConfigError, "first")
    epoch = EpochState(1, 0, error=copy)
    for _ in range(2):
        with pytest.raises(ConfigError, match="first"):
            epoch.check_error()
    assert copy.__traceback__ is None, "each time a new copy is raised"
    EpochState(1, 0).check_error()


@given(units=st.integers(0, 40), steps=st.integers(0, 20), per_step=st.integers(1, 4))
def test_a_loop_has_consumed_only_whole_steps_of_an_epoch_that_has_not_ended(
    units: int, steps: int, per_step: int
) -> None:
    """The last step may not have come as a whole: then the loop gets it again."""
    epoch = EpochState(1, 0, units=units)
    consumed = epoch.consumed_units(steps * per_step, per_step)
    assert consumed == min(steps, units // per_step) * per_step
    ended = EpochState(1, 0, units=units, ended=True)
    whole_steps = -(-units // per_step) * per_step
    assert ended.consumed_units(steps * per_step, per_step) == min(steps * per_step, whole_steps)


@given(
    replicas=st.integers(1, 4),
    units_per_step=st.integers(1, 9),
    units=st.integers(0, 40),
    steps=st.integers(0, 40),
)
def test_a_position_counts_what_the_loop_consumed(
    replicas: int, units_per_step: int, units: int, steps: int
) -> None:
    """For every number of units in a step of the job, which the sidecar's positions follow."""
    epoch = EpochState(1, 0, Counter(steps), iterator=2, units=units)
    for step in range(1, units // units_per_step + 1):
        epoch.positions.append(step * units_per_step, Position(step=step))
    requested = epoch.requested_units(replicas)
    assert requested is not None
    at = epoch.positions.at(epoch.consumed_units(requested, replicas), units_per_step, Position())
    assert at.step * units_per_step + at.extra_units == min(steps, units // replicas) * replicas


class Counter:
    """A loop that has requested some steps of iterator 2."""

    iterators = 2

    def __init__(self, steps: int = 3) -> None:
        self.steps = steps

    def requested(self, iterator: int) -> int:
        """Return the number of steps."""
        return self.steps if iterator == 2 else 0

    def invalidate(self) -> None:
        """Do nothing."""


def test_an_iterator_that_runs_during_a_restore_raises_an_error() -> None:
    epoch = EpochState(1, 0)
    epoch.stop_for_restore()
    with pytest.raises(PositionError, match="while an iterator was running"):
        require_current(epoch, 1)


@pytest.mark.parametrize(
    ("last", "position", "generation", "epoch"),
    [
        (None, None, 1, 0),
        (EpochState(4, 7), None, 5, 8),
        (None, Position(epoch=3), 2, 3),
        (EpochState(4, 7), Position(epoch=3, step=2), 6, 3),
        (EpochState(4, 7), Position(epoch=3, end=True), 6, 4),
    ],
)
def test_the_next_epoch_follows_the_last_or_the_position(
    last: EpochState | None, position: Position | None, generation: int, epoch: int
) -> None:
    assert epoch_after(last, position) == EpochState(generation, epoch)
