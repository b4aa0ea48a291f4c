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


def test_an_interval_that_workers_and_sidecars_do_not_use_is_rejected() -> None:
    assert limits_of("--heartbeat-seconds", "60", "--expiry-seconds", "240").heartbeat == 60
    with pytest.raises(ConfigError, match=r"seconds 60\.5 is above 60: .* Decrease it"):
        limits_of("--heartbeat-seconds", "60.5", "--expiry-seconds", "240")
    assert limits_of("--heartbeat-seconds", "0.1").heartbeat == 0.1
    with pytest.raises(ConfigError, match=r"seconds 0\.05 is below 0\.1: .* Increase it"):
        limits_of("--heartbeat-seconds", "0.05")
