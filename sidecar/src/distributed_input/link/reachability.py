"""Whether the host of a process answers. Its process may be busy, or may have stopped."""

from __future__ import annotations

import errno
import socket

from distributed_input.runtime import addresses

ANSWER_SECONDS = 1.2
"""TCP sends the first packet of a connection again after 1 s, so that one may be lost."""

_NO_ANSWER = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT)


def host_answers(address: str) -> bool:
    """Return whether the host of an address answers a new connection in time.

    The kernel answers, so that this does not depend on the load of the host. It is True if no
    process listens, if a proxy beside this process answers for all hosts, and if this process
    cannot ask.
    """
    if addresses.is_loopback(address):
        return True
    try:
        socket.create_connection(addresses.parse(address), ANSWER_SECONDS).close()
    except OSError as error:
        return not (isinstance(error, TimeoutError) or error.errno in _NO_ANSWER)
    return True
