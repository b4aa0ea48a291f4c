"""A server on a free port whose connections have all ended when it has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from ssl import SSLContext

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(handler: Handler, ssl: SSLContext | None = None) -> AsyncIterator[str]:
    """Handle each connection like this, and close it then. Yield host:port.

    `asyncio.Server.close` leaves connections open. The garbage collector would find
    them later, in another test, which would then fail with a ResourceWarning.

    Raises:
        TimeoutError: A handler still runs, for example because its client reads on.
    """
    handlers: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        try:
            await handler(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=ssl)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        await asyncio.sleep(0)  # An accepted connection gets its handler.
        ends = [task for task in handlers if task is not None]
        await asyncio.wait_for(asyncio.gather(*ends, return_exceptions=True), 10)
