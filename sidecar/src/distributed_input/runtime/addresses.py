"""Network addresses as people write them: host:port, [ipv6]:port, :port."""

from __future__ import annotations

import ipaddress
import socket

from distributed_input.api.errors import ConfigError


def parse(address: str, what: str = "address") -> tuple[str, int]:
    """Split "host:port" into host (without brackets, "" for all) and port.

    Raises ConfigError naming `what`, the flag or field that held it.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{what}: {address!r}: write IPv6 addresses as [host]:port")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{what}: {address!r} is not host:port with a port of 0 to 65535")
    return host, int(port)


def join(host: str, port: int) -> str:
    """Join host and port to "host:port", with brackets round IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `address` ("host:port" or "unix:path")."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host, _ = parse(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether `host` stands for all addresses of this machine."""
    return host in ("", "0.0.0.0", "::")


def own_address_towards(host: str, port: int, ipv4_only: bool = False) -> str:
    """The address from which this machine reaches `host`: nothing is sent to find out.

    Raises OSError where there is no route, or no such host.
    """
    family = socket.AF_INET if ipv4_only else socket.AF_UNSPEC
    failed: OSError | None = None
    for found in socket.getaddrinfo(host or None, port, family, socket.SOCK_DGRAM):
        with socket.socket(*found[:3]) as trial:
            try:
                trial.connect(found[4])  # of a datagram socket: the kernel only picks the route
                return str(trial.getsockname()[0])
            except OSError as error:
                failed = error
    raise failed or OSError(f"{host} has no address")
