"""A TCP proxy between sidecars and a worker that can cut or delay connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

_CHUNK_BYTES = 1 << 16


class Loop:
    """An event loop in a separate thread, for proxies."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def listen(self, serve: Callable[..., Awaitable[None]]) -> str:
        """Serve each connection to a free port. Return host:port."""
        server: asyncio.Server = self.call(asyncio.start_server(serve, "127.0.0.1", 0))
        self._servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """End the loop and all its connections."""
        self.call(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _cancel_all(self) -> None:
        for server in self._servers:
            server.close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Proxy:
    """A listener that passes bytes to and from `upstream` (host:port)."""

    def __init__(self, loop: Loop, *, counts_requests: bool = False) -> None:
        self.upstream = ""
        self._counts_requests = counts_requests  # `cut_after` counts what goes to the worker
        self.cuts = 0
        self._loop = loop
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut_after: int | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.address = loop.listen(self._serve)

    def cut_after(self, bytes_more: int) -> None:
        """Cut all connections after this many more bytes from the worker; 0: now."""
        self._loop.call(self._set_cut(bytes_more))

    def hold(self) -> None:
        """Stop passing data, like a network that loses every packet."""
        self._loop.loop.call_soon_threadsafe(self._flowing.clear)

    def flow(self) -> None:
        """Pass data again, first the data that was held."""
        self._loop.loop.call_soon_threadsafe(self._flowing.set)

    async def _set_cut(self, bytes_more: int) -> None:
        if bytes_more:
            self._cut_after = bytes_more
        else:
            self._cut()

    def _cut(self) -> None:
        self._cut_after = None
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        try:
            theirs, to_them = await asyncio.open_connection(host, int(port))
        except (OSError, ValueError):
            writer.transport.abort()
            return
        self._writers |= {writer, to_them}
        try:
            await asyncio.gather(
                self._pump(reader, to_them, counted=self._counts_requests),
                self._pump(theirs, writer, counted=not self._counts_requests),
            )
        finally:
            for each in (writer, to_them):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counted: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                if counted and self._cut_after is not None:
                    part = data[: self._cut_after]
                    self._cut_after -= len(part)
                    if not self._cut_after:
                        writer.write(part)  # cut inside a message
                        with contextlib.suppress(OSError):
                            await asyncio.wait_for(writer.drain(), 1)
                        self._cut()
                        return
                writer.write(data)
                await writer.drain()
        writer.transport.abort()  # the other side is closed
