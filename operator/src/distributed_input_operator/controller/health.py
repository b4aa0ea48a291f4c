"""/healthz, /readyz and /metrics of the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from distributed_input_operator import metrics


async def serve(
    host: str, port: int, trouble: Callable[[], str], ready: Callable[[], bool]
) -> web.AppRunner:
    """Serve until the runner's `cleanup()`. Raises OSError where the port is taken.

    `trouble`: why this process should be restarted; empty where it should not. `ready`: whether
    this replica can be asked.
    """

    async def healthz(_: web.Request) -> web.Response:
        why = trouble()
        return web.Response(text=why or "ok", status=503 if why else 200)

    async def readyz(_: web.Request) -> web.Response:
        there = ready()
        return web.Response(text="ok" if there else "no certificate", status=200 if there else 503)

    async def exposition(_: web.Request) -> web.Response:
        # In a thread: of thousands of inputs it takes a second, and nobody is to wait for it.
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
