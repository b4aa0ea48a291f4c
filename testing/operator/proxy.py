"""A proxy in front of the real API server that fails on demand."""

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

_HOP_BY_HOP = frozenset({"transfer-encoding", "content-length", "connection", "content-encoding"})
_FAULTS = {
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
}
_UNCOUNTED = ("/leases", "/selfsubjectaccessreviews")


@dataclass
class _Hold:
    """Requests that wait until a function of the test has returned."""

    matches: Callable[[str], bool]
    meanwhile: Callable[[], object]
    answered: bool
    method: str
    task: asyncio.Task[object] | None = None


class Proxy:
    """Serves plain HTTP and forwards requests to the API server of an administrator's kubeconfig.

    Attributes:
        writes: method and path of each successful write.
        on_write: called after each write, in the proxy's thread.
        watches: paths of all watch requests.
        lists: paths of all requests that begin a list.
    """

    def __init__(self, kubeconfig: Path, folder: Path, seed: int = 0) -> None:
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._folder = folder
        self._random = random.Random(seed)
        self.writes: list[str] = []
        self.on_write: Callable[[], object] = lambda: None
        self.watches: list[str] = []
        self.lists: list[str] = []
        self._holds: list[_Hold] = []
        self._open: list[web.Request] = []
        self._expired: set[str] = set()
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(30)
        self.kubeconfig = folder / "proxy.kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
        config |= {"apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {}}]}
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def close(self) -> None:
        """Stop serving."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def hold(
        self,
        matches: Callable[[str], bool],
        meanwhile: Callable[[], object],
        *,
        answered: bool = False,
        method: str = "GET",
    ) -> None:
        """Hold each request whose path and query match until `meanwhile` has returned.

        meanwhile: called once, at the first such request.
        answered: whether to forward the requests at once and hold the responses instead.
        method: that of the requests.
        """
        self._holds.append(_Hold(matches, meanwhile, answered, method))

    def expire(self, plural: str = "") -> None:
        """Cut off the watches of one kind, or all. The next watches get 410 Expired."""

        def cut_watches() -> None:
            for entry in self._open:
                if entry.path.endswith(plural):
                    self._expired.add(entry.path)
                    assert entry.transport is not None
                    entry.transport.close()

        self._loop.call_soon_threadsafe(cut_watches)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        await self._runner.cleanup()
        current = asyncio.current_task()
        pending = [task for task in asyncio.all_tasks() if task is not current]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await self._session.close()
        await asyncio.sleep(0.25)  # aiohttp closes connections asynchronously

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
        watches = "watch" in request.query
        if watches:
            self.watches.append(request.path)
            if request.path in self._expired:
                self._expired.remove(request.path)
                return web.json_response({"type": "ERROR", "object": _failure(410)})
        elif "limit" in request.query and not request.query.get("continue"):
            self.lists.append(request.path)
        await self._wait_for_holds(request, answered=False)
        headers = {
            k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP | {"host"}
        }
        async with self._session.request(
            request.method,
            self._url + request.path_qs,
            headers=headers,
            data=await request.read() or None,
        ) as upstream:
            self._count(request, upstream.status)
            await self._wait_for_holds(request, answered=True)
            return await self._pass_on(request, upstream, watches)

    async def _wait_for_holds(self, request: web.Request, *, answered: bool) -> None:
        for entry in self._holds:
            if (
                request.method == entry.method
                and entry.answered == answered
                and entry.matches(request.path_qs)
            ):
                entry.task = entry.task or asyncio.create_task(asyncio.to_thread(entry.meanwhile))
                await asyncio.shield(entry.task)

    def _count(self, request: web.Request, status: int) -> None:
        changed = request.method != "GET" and status < 300
        if changed and not any(part in request.path for part in _UNCOUNTED):
            self.writes.append(f"{request.method} {request.path}")
            self.on_write()

    async def _pass_on(
        self, request: web.Request, upstream: aiohttp.ClientResponse, watches: bool
    ) -> web.StreamResponse:
        response_headers = {
            k: v for k, v in upstream.headers.items() if k.lower() not in _HOP_BY_HOP
        }
        if "Content-Encoding" in upstream.headers:
            response_headers["Content-Encoding"] = upstream.headers["Content-Encoding"]
        response = web.StreamResponse(status=upstream.status, headers=response_headers)
        if watches:
            self._open.append(request)
        try:
            await self._stream(request, upstream, response, watches)
        except ConnectionError:
            pass  # the operator has disconnected
        finally:
            self._open = [entry for entry in self._open if entry is not request]
        return response

    async def _stream(
        self,
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        response: web.StreamResponse,
        watches: bool,
    ) -> None:
        await response.prepare(request)
        async for data in upstream.content.iter_any():
            await response.write(data)
        await response.write_eof()


def status(code: int) -> web.Response:
    """Return a failure as the API server reports it."""
    return web.json_response(_failure(code), status=code)


def _failure(code: int) -> dict[str, object]:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return {**body, "reason": _FAULTS[code], "message": "a fault that a test injected"}


def abort(request: web.Request) -> web.Response:
    """Close the connection of a request."""
    assert request.transport is not None
    request.transport.close()
    return web.Response(status=500)
