"""An HTTP proxy before object storage. It logs each request, and can make it fail or wait.

Only for requests without a body. Each request has a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from testing.chaos.proxy import Loop


class Fault(Enum):
    """What happens to a request."""

    NONE = "none"
    UNAVAILABLE = "503, without the server"
    CUT = "half of the server's response, then a reset"
    SLOW = "the response of the server after a wait"


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        method: of HTTP.
        path: with the query.
        again: number of earlier requests with this method and path.
    """

    method: str
    path: str
    again: int


Choice = Callable[[Request], Fault]
_HEAD = re.compile(rb"(\S+) (\S+) HTTP/1\.1\r\n")
_UNAVAILABLE = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s"
)
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class FaultyProxy:
    """A proxy in a thread.

    Attributes:
        address: its host:port.
        requests: all requests.
        faults: how often each fault occurred.
        choose: returns the fault of a request.
    """

    def __init__(self, upstream: str, slow_seconds: float) -> None:
        self.address = ""
        self.requests: list[Request] = []
        self.faults: dict[Fault, int] = dict.fromkeys(Fault, 0)
        self.choose: Choice = lambda request: Fault.NONE
        self._upstream = upstream
        self._slow_seconds = slow_seconds
        self._counts: dict[tuple[str, str], int] = {}

    def clear(self, choose: Choice = lambda request: Fault.NONE) -> None:
        """Forget the requests, and set what happens to the next ones."""
        self.choose = choose
        self.requests, self.faults = [], dict.fromkeys(Fault, 0)
        self._counts = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            fault = self._fault(head)
            if fault is Fault.UNAVAILABLE:
                writer.write(_UNAVAILABLE % (len(_SLOW_DOWN), _SLOW_DOWN))
                await writer.drain()
                writer.close()
                return
            if fault is Fault.SLOW:
                await asyncio.sleep(self._slow_seconds)
            response = await self._response(head)
            writer.write(response[: len(response) // 2] if fault is Fault.CUT else response)
            await writer.drain()
        if not writer.is_closing():
            writer.close()

    async def _response(self, head: bytes) -> bytes:
        host, _, port = self._upstream.rpartition(":")
        theirs, to_them = await asyncio.open_connection(host, int(port))
        try:
            to_them.write(re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)[:-2])
            to_them.write(b"Connection: close\r\n\r\n")
            return await theirs.read(-1)
        finally:
            to_them.close()

    def _fault(self, head: bytes) -> Fault:
        found = _HEAD.match(head)
        assert found, head
        key = found[1].decode(), found[2].decode()
        self._counts[key] = self._counts.get(key, -1) + 1
        request = Request(*key, self._counts[key])
        self.requests.append(request)
        fault = self.choose(request)
        self.faults[fault] += 1
        return fault


@contextlib.contextmanager
def faulty_proxy(upstream: str, slow_seconds: float = 0.5) -> Iterator[FaultyProxy]:
    """Start a proxy before `upstream` (host:port)."""
    proxy, loop = FaultyProxy(upstream, slow_seconds), Loop()
    proxy.address = loop.listen(proxy.serve)
    try:
        yield proxy
    finally:
        loop.close()
