"""Parsing of network addresses."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("a.b:80", "a.b", 80),
        ("[::1]:0", "::1", 0),
        (":9", "", 9),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
    ],
)
def test_an_address_has_a_host_and_a_port(text, host, port):
    assert addresses.parse(text) == (host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:65536", "host:-1", "host:²"])
def test_an_invalid_address_is_rejected_with_the_flag(text):
    with pytest.raises(ConfigError, match=r"--listen: .*host:port"):
        addresses.parse(text, "--listen")


def test_ipv6_without_brackets_is_rejected_with_the_fix():
    with pytest.raises(ConfigError, match=r"\[host\]:port"):
        addresses.parse("::1:80")


@pytest.mark.parametrize("path", ["/a/b", "/a b/%41?#=ü"])
def test_an_address_of_a_unix_socket_has_its_path(path):
    address = addresses.unix(path)
    assert addresses.unix_path(address) == path
    assert not set(address) & set(" ?#=")  # gRPC parses a URI, and --dispatcher has INPUT=ADDRESS
    addresses.check(address, "--listen")


def test_other_addresses_are_checked_with_the_flag():
    assert addresses.unix_path("a.b:80") == ""
    with pytest.raises(ConfigError, match="--listen: 'unix' is not host:port"):
        addresses.check("unix", "--listen")


@pytest.mark.parametrize("text", ["a:1", "[fe80::1]:2"])
def test_join_is_the_inverse_of_parse(text):
    assert addresses.join(*addresses.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.1.2.3:5", True),
        ("[::1]:5", True),
        ("localhost:5", True),
        ("unix:/tmp/x", True),
        ("0.0.0.0:5", False),
        (":5", False),
        ("[::]:5", False),
        ("10.0.0.1:5", False),
        ("localhost.example.com:5", False),
    ],
)
def test_loopback_addresses_are_recognized(text, loopback):
    assert addresses.is_loopback(text) is loopback
