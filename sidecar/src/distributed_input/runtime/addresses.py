"""Addresses in the forms host:port, [ipv6]:port, :port, and unix:PATH for a Unix socket."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from urllib.parse import quote, unquote

from distributed_input.api.errors import ConfigError

_UNIX = "unix:"


def parse(address: str, what: str = "address") -> tuple[str, int]:
    """Return the host without brackets (empty: all addresses of this machine) and the port.

    Raises:
        ConfigError: the address is invalid; names `what`, the flag or field.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{what}: {address!r}: write IPv6 addresses as [host]:port")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{what}: {address!r} is not host:port with a port of 0 to 65535")
    return host, int(port)


def unix(path: str) -> str:
    """Return the address of a Unix socket, as gRPC parses it."""
    return _UNIX + quote(path)


def unix_path(address: str) -> str:
    """Return the path of the Unix socket that has this address. Empty: it is host:port."""
    return unquote(address[len(_UNIX) :]) if address.startswith(_UNIX) else ""


def check(address: str, what: str) -> None:
    """Raise ConfigError if an address is invalid. `what` is the flag or field, for the error."""
    if not unix_path(address):
        parse(address, what)


def join(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach `address` ("host:port" or "unix:path")."""
    if address.startswith((_UNIX, "unix-abstract:")):
        return True
    host, _ = parse(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Return whether `host` means all addresses of this machine."""
    return host in ("", "0.0.0.0", "::")


def own_address_towards(host: str, port: int, ipv4_only: bool = False) -> str:
    """Return the local address of connections to `host`. Nothing is sent.

    Raises:
        OSError: the host is unknown or there is no route to it.
    """
    family = socket.AF_INET if ipv4_only else socket.AF_UNSPEC
    failed: OSError | None = None
    for found in socket.getaddrinfo(host or None, port, family, socket.SOCK_DGRAM):
        with socket.socket(*found[:3]) as trial:
            try:
                trial.connect(found[4])  # on a datagram socket, this only selects the route
                return str(trial.getsockname()[0])
            except OSError as error:
                failed = error
    raise failed or OSError(f"{host} has no address")


def free_ports(count: int) -> list[int]:
    """Return distinct ports of the loopback interface that were free at the time of the call."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
