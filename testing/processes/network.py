"""The addresses of this machine."""

from __future__ import annotations

import socket


def own_address() -> str:
    """Return an IPv4 address of this machine that is not a loopback address; "": it has none.

    Packets to it use the loopback interface, too.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        found = str(probe.getsockname()[0])
    return "" if found.startswith("127.") else found
