"""Flags of the dispatcher."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.dispatcher import main
from distributed_input.dispatcher.limits import DispatcherLimits


def limits_of(*flags: str) -> DispatcherLimits:
    return main._limits(main._parser().parse_args(flags))


def test_the_defaults_are_those_of_the_limits() -> None:
    assert limits_of() == DispatcherLimits()


def test_the_flags_set_the_limits() -> None:
    limits = limits_of("--heartbeat-seconds", "2", "--expiry-seconds", "6")
    assert (limits.heartbeat, limits.expiry, limits.hold) == (2, 6, 12)


def test_an_expiry_below_two_heartbeats_is_rejected() -> None:
    with pytest.raises(ConfigError, match="Increase --expiry-seconds"):
        limits_of("--heartbeat-seconds", "2", "--expiry-seconds", "3")
