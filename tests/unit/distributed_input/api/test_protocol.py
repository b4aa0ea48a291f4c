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
