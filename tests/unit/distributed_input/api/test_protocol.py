"""Versions: one apart still speak with each other."""

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
def test_one_version_apart_is_compatible(peer):
    protocol.check_protocol(peer, "worker w")


@pytest.mark.usefixtures("at_seven")
def test_an_older_peer_is_to_be_upgraded():
    with pytest.raises(ProtocolError, match=r"worker w speaks protocol 5.* 7 .*: upgrade worker w"):
        protocol.check_protocol(5, "worker w")


@pytest.mark.usefixtures("at_seven")
def test_a_newer_peer_asks_for_an_upgrade_here():
    with pytest.raises(ProtocolError, match=r"speaks protocol 9.*upgrade this side"):
        protocol.check_protocol(9, "worker w")


def test_a_peer_that_names_no_version_is_refused():
    with pytest.raises(ProtocolError, match="no protocol version"):
        protocol.check_protocol(0, "worker w")
