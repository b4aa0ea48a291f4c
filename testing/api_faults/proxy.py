"""The proxy between the operator and the API server, with the faults of Sieve.

A seed gives the faults. Their place in time depends on the machine, too: a run with the same seed
has as many faults of each kind, not the same ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from testing.operator.proxy import Proxy, abort, status


@dataclass(frozen=True)
class Faults:
    """The share of requests or events, 0 to 1, that each fault hits."""

    statuses: tuple[int, ...] = ()
    """HTTP statuses of requests that the API server never gets."""
    failing: float = 0.0
    """Requests with one of these statuses."""
    lost_before: float = 0.0
    """Requests whose connection closes before the API server gets them."""
    lost_after: float = 0.0
    """Requests whose connection closes after the API server has handled them."""
    cut: float = 0.0
    """Watch events that do not arrive, because the connection closes before them."""
    duplicated: float = 0.0
    """Watch events that arrive twice, and once more after a later event."""
    slow: float = 0.0
    """Seconds by which each watch event is late."""


NO_FAULTS = Faults()


class FaultProxy(Proxy):
    """A proxy with faults.

    Attributes:
        faults: the faults from now on.
        kill_at: the numbers of the writes after which `on_kill` is called, before their response.
        on_kill: kills the operator.
        injected: number of faults of each kind.
    """

    def __init__(self, kubeconfig: Path, folder: Path, seed: int = 0) -> None:
        self.faults = NO_FAULTS
        self.kill_at: Container[int] = ()
        self.on_kill: Callable[[], None] = lambda: None
        self.injected: dict[str, int] = {}
        self._lists: dict[tuple[str, str], tuple[int, dict[str, str], bytes]] = {}
        self._stale_until = 0.0
        super().__init__(kubeconfig, folder, seed)
        self.on_write = self._after_write

    def serve_stale_lists(self, seconds: float) -> None:
        """Answer lists as the last time, and hold all watches, for a time.

        This is how an API server looks whose watch cache lags behind.
        """
        self._stale_until = time.monotonic() + seconds

    def _after_write(self) -> None:
        if len(self.writes) in self.kill_at:
            self._note("killed")
            self.on_kill()

    def _note(self, fault: str) -> None:
        self.injected[fault] = self.injected.get(fault, 0) + 1

    def _hits(self, share: float, fault: str) -> bool:
        if not share or self._random.random() >= share:
            return False
        self._note(fault)
        return True

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        faults, watches = self.faults, "watch" in request.query
        if watches:
            await asyncio.sleep(max(0.0, self._stale_until - time.monotonic()))
        elif known := self._stale_list(request):
            self._note("stale list")
            return known
        if not watches and self._hits(faults.failing, "status"):
            return status(self._random.choice(faults.statuses))
        if not watches and self._hits(faults.lost_before, "lost before"):
            return abort(request)
        return await super()._handle(request)

    def _stale_list(self, request: web.Request) -> web.Response | None:
        known = self._lists.get(_list_key(request))
        if request.method != "GET" or known is None or time.monotonic() >= self._stale_until:
            return None
        code, headers, body = known
        return web.Response(status=code, headers=headers, body=body)

    async def _stream(
        self,
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        response: web.StreamResponse,
        watches: bool,
    ) -> None:
        if watches:
            await response.prepare(request)
            await self._events(request, upstream, response)
            return
        if self._hits(self.faults.lost_after, "lost after"):
            abort(request)
            return
        if request.method == "GET" and "limit" in request.query:
            body = await upstream.read()
            self._lists[_list_key(request)] = (response.status, dict(response.headers), body)
            response.headers.popall("Content-Length", None)
            await response.prepare(request)
            await response.write(body)
            await response.write_eof()
            return
        await super()._stream(request, upstream, response, watches)

    async def _events(
        self,
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        response: web.StreamResponse,
    ) -> None:
        """Pass on the events of a watch, line by line."""
        rest, again = b"", b""
        async for data in upstream.content.iter_any():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                faults = self.faults
                if self._hits(faults.cut, "cut watch"):
                    abort(request)
                    return
                if faults.slow:
                    await asyncio.sleep(faults.slow * self._random.random())
                await response.write(line + b"\n" + again)
                again = b""
                if self._hits(faults.duplicated, "duplicated event"):
                    await response.write(line + b"\n")
                    again = line + b"\n"
        await response.write_eof()


def _list_key(request: web.Request) -> tuple[str, str]:
    """Return what tells lists apart. The same path has full objects, or only their metadata."""
    return request.path_qs, request.headers.get("Accept", "")
