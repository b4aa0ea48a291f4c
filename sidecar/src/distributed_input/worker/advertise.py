"""The address of a worker that the dispatcher sends to sidecars."""

from __future__ import annotations

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses


def advertised_address(configured: str, bound: str, dispatcher: str) -> str:
    """Return the host:port at which sidecars reach this worker.

    Args:
        configured: value of --advertise: host:port or "auto".
        bound: host:port or unix:PATH on which the worker listens.
        dispatcher: host:port of the dispatcher. Sidecars that reach the dispatcher's network reach
            this host by its address in that network.

    Raises:
        ConfigError: the address cannot be determined. Names the flag to set.
    """
    if configured != flags.ADVERTISE_AUTO:
        if not addresses.parse(configured, "--advertise")[1]:
            raise ConfigError(f"--advertise {configured}: name the port that sidecars connect to")
        return configured
    if addresses.unix_path(bound):
        return bound
    host, port = addresses.parse(bound, "--listen")
    if not addresses.is_wildcard(host):
        return bound
    peer = addresses.parse(dispatcher, "--dispatcher")
    try:
        own = addresses.own_address_towards(*peer, ipv4_only=host == "0.0.0.0")
    except OSError as error:
        raise ConfigError(
            f"--advertise auto: the worker listens on all addresses ({bound}), and the one that "
            f"reaches the dispatcher at {dispatcher} cannot be determined "
            f"({error.strerror or error}). Set --advertise HOST:PORT."
        ) from error
    return addresses.join(own, port)
