"""Compatibility of protocol versions."""

from __future__ import annotations

import pytest

from distributed_input.api import protocol
from distributed_input.api.errors import ProtocolError


@pytest.fixture
def at_seven(monkeypatch):
    monkeypatch.setattr(protocol, "PROTOCOL", 7)
    monkeypatch.setattr(protocol, "MIN_COMPATIBLE", 6)
    monkeypatch.setattr(protocol, "MAX_COMPATIBLE", 8)


def test_this_version_is_compatible_with_itself():
    protocol.check_protocol(protocol.PROTOCOL, "worker w")


@pytest.mark.parametrize("peer", [6, 7, 8])
@pytest.mark.usefixtures("at_seven")
def test_a_peer_one_version_apart_is_compatible(peer):
    protocol.check_protocol(peer, "worker w")


@pytest.mark.usefixtures("at_seven")
def test_an_older_peer_must_be_upgraded():
    with pytest.raises(ProtocolError, match=r"worker w uses protocol 5.* 7 .*: upgrade worker w"):
        protocol.check_protocol(5, "worker w")


@pytest.mark.usefixtures("at_seven")
def test_a_newer_peer_requires_an_upgrade_of_this_process():
    with pytest.raises(ProtocolError, match=r"uses protocol 9.*upgrade this process"):
        protocol.check_protocol(9, "worker w")


def test_a_peer_without_a_version_is_rejected():
    with pytest.raises(ProtocolError, match="no protocol version"):
        protocol.check_protocol(0, "worker w")


@pytest.mark.parametrize(
    ("sent", "used"),
    [
        *((sent, 1.0) for sent in (0.0, -1.0, float("inf"), float("-inf"), float("nan"))),
        *((sent, sent) for sent in (0.1, 0.2, 1.0, 60.0)),
        *((sent, 0.1) for sent in (0.09, 1e-300)),
        *((sent, 60.0) for sent in (60.5, 120.0, 1e300)),
    ],
)
def test_the_interval_of_heartbeats_is_a_usable_time(sent, used):
    assert protocol.heartbeat_interval(sent) == used
