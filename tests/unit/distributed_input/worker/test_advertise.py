"""The address that a worker advertises."""

from __future__ import annotations

import socket

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses
from distributed_input.worker.advertise import advertised_address

DISPATCHER = "127.0.0.1:5000"


@pytest.mark.parametrize("bound", ["127.0.0.1:7", "[::1]:7", "worker.example:7"])
def test_a_single_address_is_advertised_as_bound(bound: str) -> None:
    assert advertised_address("auto", bound, DISPATCHER) == bound


@pytest.mark.parametrize("bound", ["0.0.0.0:7", "[::]:7", ":7"])
def test_a_wildcard_becomes_the_address_that_reaches_the_dispatcher(bound: str) -> None:
    assert advertised_address("auto", bound, DISPATCHER) == "127.0.0.1:7"
    assert advertised_address("auto", bound, "localhost:5000") in ("127.0.0.1:7", "[::1]:7")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_wildcard_of_ipv6_becomes_an_ipv6_address() -> None:
    try:
        addresses.own_address_towards("::1", 1)
    except OSError:
        pytest.skip("no IPv6 here")
    assert advertised_address("auto", "[::]:7", "[::1]:5000") == "[::1]:7"


def test_finding_the_address_sends_no_packet() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(0.05)
        assert advertised_address("auto", "0.0.0.0:7", f"127.0.0.1:{peer.getsockname()[1]}")
        with pytest.raises(TimeoutError):
            peer.recv(1)


def test_a_unix_socket_is_advertised() -> None:
    assert advertised_address("auto", "unix:/s/worker-1", "unix:/s/dispatcher-0") == (
        "unix:/s/worker-1"
    )


def test_a_configured_address_is_advertised() -> None:
    assert advertised_address("10.0.0.1:80", "0.0.0.0:7", DISPATCHER) == "10.0.0.1:80"


@pytest.mark.parametrize(
    ("configured", "dispatcher", "message"),
    [
        ("auto", "no-such-host.invalid:5000", r"--advertise auto: .*0.0.0.0:7.*--advertise HOST"),
        ("auto", "[::1]:5000", "--advertise auto"),  # listens on IPv4 only
        ("auto", "nowhere", "--dispatcher: 'nowhere'"),
        ("10.0.0.1", DISPATCHER, "--advertise: '10.0.0.1' is not host:port"),
        ("10.0.0.1:0", DISPATCHER, "--advertise 10.0.0.1:0: name the port"),
    ],
)
def test_an_error_names_the_flag(configured: str, dispatcher: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        advertised_address(configured, "0.0.0.0:7", dispatcher)
