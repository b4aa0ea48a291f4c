"""The address that a worker tells the dispatcher, and so the sidecars."""

from __future__ import annotations

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses

AUTO = "auto"


def advertised(wanted: str, bound: str, dispatcher: str) -> str:
    """host:port where sidecars reach this worker.

    Args:
        wanted: what --advertise says: host:port, or "auto".
        bound: host:port where it listens.
        dispatcher: host:port. Whoever reaches the dispatcher's network reaches this host by the
            address that it has there.

    Raises:
        ConfigError: naming --advertise.
    """
    if wanted != AUTO:
        if not addresses.parse(wanted, "--advertise")[1]:
            raise ConfigError(f"--advertise {wanted}: name the port at which sidecars connect")
        return wanted
    host, port = addresses.parse(bound, "--listen")
    if not addresses.is_wildcard(host):
        return bound
    peer = addresses.parse(dispatcher, "--dispatcher")
    try:
        own = addresses.own_address_towards(*peer, ipv4_only=host == "0.0.0.0")
    except OSError as error:
        raise ConfigError(
            f"--advertise auto: the worker listens on all addresses ({bound}), and which of them "
            f"reaches the dispatcher at {dispatcher} cannot be told ({error.strerror or error}): "
            "set --advertise HOST:PORT"
        ) from error
    return addresses.join(own, port)
