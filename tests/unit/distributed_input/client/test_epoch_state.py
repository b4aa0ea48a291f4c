"""An epoch belongs to one iterator, and keeps the error that ended it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError, FencedError
from distributed_input.client.epoch_state import EpochState, require_current, without_traceback


def test_an_older_iterator_is_fenced() -> None:
    epoch = EpochState(generation=2, epoch=0)
    assert require_current(epoch, 2) is epoch
    for current in (epoch, None):
        with pytest.raises(FencedError, match="another iterator"):
            require_current(current, 1)


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
    assert ended.consumed_units(steps * per_step, per_step) == min(steps * per_step, units)
