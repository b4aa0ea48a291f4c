"""The pages of the health server."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from distributed_input_operator import health


@pytest.mark.parametrize(
    ("failure", "ready", "codes"),
    [("", True, [200, 200]), ("no events arrive", True, [503, 200]), ("", False, [200, 503])],
)
def test_the_pages_show_health_readiness_and_metrics(failure, ready, codes):
    async def scenario() -> list[tuple[int, str]]:
        runner = await health.serve("127.0.0.1", 0, lambda: failure, lambda: ready)
        host, port = runner.addresses[0]
        try:
            async with aiohttp.ClientSession() as session:
                pages = []
                for page in ("healthz", "readyz", "metrics"):
                    async with session.get(f"http://{host}:{port}/{page}") as response:
                        pages.append((response.status, await response.text()))
                return pages
        finally:
            await runner.cleanup()

    healthz, readyz, exposition = asyncio.run(scenario())
    assert [healthz[0], readyz[0]] == codes
    assert healthz[1] == (failure or "ok")
    assert "distributed_input_operator_leader" in exposition[1]
