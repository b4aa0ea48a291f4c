"""The version of the wire: parts one version apart still speak with each other."""

from __future__ import annotations

from distributed_input.api.errors import ProtocolError

PROTOCOL = 1
"""The version that this build speaks; raised when the meaning of a message changes."""

MIN_COMPATIBLE = max(1, PROTOCOL - 1)
MAX_COMPATIBLE = PROTOCOL + 1


def check_protocol(peer: int, who: str) -> None:
    """Accept a peer at most one version away.

    `peer` is the version that the peer sent (0: it sent none), `who` names the peer
    for the message ("worker 10.0.0.7:5000"). Raises ProtocolError.
    """
    if MIN_COMPATIBLE <= peer <= MAX_COMPATIBLE:
        return
    spoken = f"protocol {peer}" if peer else "no protocol version"
    older = f"upgrade {who}" if peer < PROTOCOL else f"upgrade this side, or downgrade {who}"
    raise ProtocolError(
        f"{who} speaks {spoken}, this side speaks {PROTOCOL} "
        f"(compatible with {MIN_COMPATIBLE} to {MAX_COMPATIBLE}): {older}"
    )
