"""An API server that fails on demand: a proxy before the real one."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

_HOP = frozenset({"transfer-encoding", "content-length", "connection", "content-encoding"})
_FAULTS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_UNCOUNTED = ("/leases", "/selfsubjectaccessreviews")


@dataclass
class _Hold:
    """Requests that wait until a test has done something."""

    matches: Callable[[str], bool]
    meanwhile: Callable[[], None]
    answered: bool
    task: asyncio.Task[None] | None = None


class Proxy:
    """Serves plain HTTP on port 0 and passes all on to the server of an administrator's kubeconfig.

    Attributes:
        rate: of requests that fail, 0 to 1: an error status, or no answer, before or after the real
            server did what was asked; watches break off.
        writes: requests so far that changed something and went through, by path.
        written: called after each of them, in the proxy's thread.
        watches: paths of the watches that were asked for so far.
    """

    def __init__(self, kubeconfig: Path, folder: Path, seed: int = 0) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._folder = folder
        self._random = random.Random(seed)
        self.rate = 0.0
        self.writes: list[str] = []
        self.written: Callable[[], None] = lambda: None
        self.watches: list[str] = []
        self._holds: list[_Hold] = []
        self._open: list[web.Request] = []
        self._expired: set[str] = set()
        self.frozen = threading.Event()
        """Set: nothing is told by any watch any more."""
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(30)
        self.kubeconfig = folder / "proxy.kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        made = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
        made |= {"apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {}}]}
        self.kubeconfig.write_text(yaml.safe_dump(made))

    def close(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def hold(
        self,
        matches: Callable[[str], bool],
        meanwhile: Callable[[], None],
        *,
        answered: bool = False,
    ) -> None:
        """Let each GET request whose path and query match wait until `meanwhile` has returned; it
        is called once, at the first such request.

        answered: the requests are passed on at once, and the answers wait.
        """
        self._holds.append(_Hold(matches, meanwhile, answered))

    def expire(self) -> None:
        """Break all watches off, and answer the next one of each path that its version is gone."""

        def cut() -> None:
            for one in self._open:
                self._expired.add(one.path)
                assert one.transport is not None
                one.transport.close()

        self._loop.call_soon_threadsafe(cut)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        await self._runner.cleanup()
        own = asyncio.current_task()
        passing = [task for task in asyncio.all_tasks() if task is not own]
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        await self._session.close()
        await asyncio.sleep(0.25)  # the connections' own ends, which aiohttp leaves to the loop

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls(), limit=0), auto_decompress=False
        )
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def _tls(self) -> ssl.SSLContext:
        cluster, user = self._config["clusters"][0]["cluster"], self._config["users"][0]["user"]
        self._url = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        for part in ("certificate", "key"):
            path = self._folder / f"client-{part}.pem"
            path.write_bytes(base64.b64decode(user[f"client-{part}-data"]))
        context.load_cert_chain(
            self._folder / "client-certificate.pem", self._folder / "client-key.pem"
        )
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fails = self._random.random() < self.rate
        watches = "watch" in request.query
        if watches:
            self.watches.append(request.path)
            if request.path in self._expired:
                self._expired.remove(request.path)
                return web.json_response({"type": "ERROR", "object": _failure(410)})
        await self._held(request, answered=False)
        kind = self._random.choice([*_FAULTS, "before", "after"]) if fails and not watches else None
        if isinstance(kind, int):
            return _status(kind)
        if kind == "before":
            return _broken(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP | {"host"}}
        async with self._session.request(
            request.method,
            self._url + request.path_qs,
            headers=headers,
            data=await request.read() or None,
        ) as answer:
            self._count(request, answer.status)
            await self._held(request, answered=True)
            if kind == "after":
                return _broken(request)
            return await self._pass_on(request, answer, watches, fails)

    async def _held(self, request: web.Request, *, answered: bool) -> None:
        for one in self._holds:
            if (
                request.method == "GET"
                and one.answered == answered
                and one.matches(request.path_qs)
            ):
                one.task = one.task or asyncio.create_task(asyncio.to_thread(one.meanwhile))
                await asyncio.shield(one.task)

    def _count(self, request: web.Request, status: int) -> None:
        changed = request.method != "GET" and status < 300
        if changed and not any(part in request.path for part in _UNCOUNTED):
            self.writes.append(f"{request.method} {request.path}")
            self.written()

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, watches: bool, fails: bool
    ) -> web.StreamResponse:
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
        if "Content-Encoding" in answer.headers:
            kept["Content-Encoding"] = answer.headers["Content-Encoding"]
        response = web.StreamResponse(status=answer.status, headers=kept)
        if watches:
            self._open.append(request)
        try:
            await self._stream(request, answer, response, watches, fails)
        except ConnectionError:
            pass  # the operator has gone
        finally:
            self._open = [one for one in self._open if one is not request]
        return response

    async def _stream(
        self,
        request: web.Request,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        watches: bool,
        fails: bool,
    ) -> None:
        await response.prepare(request)
        seen = 0
        async for data in answer.content.iter_any():
            seen += 1
            if watches and (self.frozen.is_set() or (fails and seen > 3)):
                if fails:
                    break
                continue  # the stream is open, and says nothing
            await response.write(data)
        await response.write_eof()


def _status(code: int) -> web.Response:
    return web.json_response(_failure(code), status=code)


def _failure(code: int) -> dict[str, object]:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return {**body, "reason": _FAULTS[code], "message": "a fault that a test asked for"}


def _broken(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response(status=500)
