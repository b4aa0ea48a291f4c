"""The HTTP server of /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from distributed_input_operator import metrics


async def serve(
    host: str, port: int, failure: Callable[[], str], ready: Callable[[], bool]
) -> web.AppRunner:
    """Serve until the runner's `cleanup()`. Raises OSError if the port is in use.

    Args:
        host: address to listen on. Empty: all addresses.
        port: port to listen on.
        failure: returns why this process should be restarted. Empty: it is healthy.
        ready: returns whether this replica can serve requests.
    """

    async def healthz(_: web.Request) -> web.Response:
        message = failure()
        return web.Response(text=message or "ok", status=503 if message else 200)

    async def readyz(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ok")
        return web.Response(text="no certificate", status=503)

    async def exposition(_: web.Request) -> web.Response:
        # A thread, because thousands of inputs take a second, which must not block the event loop.
        page = await asyncio.to_thread(metrics.exposition)
        return web.Response(body=page, headers={"Content-Type": "text/plain"})

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/metrics", exposition),
        ]
    )
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, host or None, port).start()
    return runner
