"""The version of the wire protocol, and limits that both sides of a connection use.

Processes whose versions differ by one are compatible.
"""

from __future__ import annotations

import math

from distributed_input.api.errors import ConfigError, ProtocolError

PROTOCOL = 1
"""Version of this build. Increase it when the meaning of a message changes."""

TO_TRAINER_BYTES = 1 << 18
"""Longest packet from a sidecar to a trainer on their socket. Longer ones are cut off."""
TO_SIDECAR_BYTES = 1 << 17
"""Longest packet from a trainer to a sidecar."""

FAILURE_CHARACTERS = 1000
"""Longest error of one trainer that the others get."""
MIN_HEARTBEAT_SECONDS, MAX_HEARTBEAT_SECONDS = 0.1, 60.0
"""Shortest and longest interval of the heartbeats of workers and sidecars."""
_HEARTBEAT_SECONDS = 1.0  # if the dispatcher sends no usable interval

MIN_COMPATIBLE = max(1, PROTOCOL - 1)
MAX_COMPATIBLE = PROTOCOL + 1


def check_protocol(peer: int, who: str) -> None:
    """Raise ProtocolError unless the peer's version differs by at most one.

    `peer` is 0 if it sent none. `who` names it, such as "worker 10.0.0.7:5000".
    """
    if MIN_COMPATIBLE <= peer <= MAX_COMPATIBLE:
        return
    version = f"protocol {peer}" if peer else "no protocol version"
    remedy = f"upgrade {who}" if peer < PROTOCOL else f"upgrade this process, or downgrade {who}"
    raise ProtocolError(
        f"{who} uses {version}, this process uses protocol {PROTOCOL} "
        f"(compatible with {MIN_COMPATIBLE} to {MAX_COMPATIBLE}): {remedy}"
    )


def heartbeat_interval(seconds: float) -> float:
    """Return the seconds until the next heartbeat.

    The default replaces what is no time.
    """
    if not math.isfinite(seconds) or seconds <= 0:
        return _HEARTBEAT_SECONDS
    return min(max(seconds, MIN_HEARTBEAT_SECONDS), MAX_HEARTBEAT_SECONDS)


def too_old(source: str, feature: str) -> ConfigError:
    """Return the error of a trainer whose sidecar does not know a feature.

    Args:
        source: who asks for it, for the message.
        feature: its name, such as "ranks".
    """
    return ConfigError(f"{source}: the sidecar's release has no {feature}: upgrade its image")
