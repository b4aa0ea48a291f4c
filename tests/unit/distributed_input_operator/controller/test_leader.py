"""A leader whose work ends, in any way, ends as well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distributed_input_operator.controller.leader import LeaseLock, run_as_leader
from distributed_input_operator.kube.api import ApiError


class LeaseApi:
    """An API server that has only the Lease."""

    def __init__(self) -> None:
        self.lease: Any = None

    async def request(self, method: str, path: str, *, body: Any = None) -> Any:
        if method != "GET":
            meta = {"resourceVersion": "1", **body["metadata"]}
            self.lease = {**body, "metadata": meta}
        if self.lease is None:
            raise ApiError(404, "NotFound", path)
        return self.lease


def lead(work: Any) -> None:
    async def body() -> None:
        api: Any = LeaseApi()
        async with asyncio.timeout(20):
            await run_as_leader(LeaseLock(api, "lease", "operators", "me"), work)

    asyncio.run(body())


def test_the_end_of_the_work_is_the_end():
    async def work() -> None:
        await asyncio.sleep(0)

    lead(work)


def test_an_error_of_the_work_is_raised():
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        lead(work)


def test_work_that_something_else_cancels_ends():
    """After SIGTERM, kopf cancels the requests that still run, and so the work that waits."""

    async def work() -> None:
        request = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(request.cancel)
        await asyncio.gather(request)

    with pytest.raises(asyncio.CancelledError):
        lead(work)


def test_a_leader_that_is_cancelled_waits_until_its_work_has_ended():
    """The work would otherwise see that the Lease is given back, and end the process."""
    ended = []

    async def body() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(True)

        api: Any = LeaseApi()
        leading = asyncio.create_task(run_as_leader(LeaseLock(api, "lease", "o", "me"), work))
        async with asyncio.timeout(20):
            await begun.wait()
            leading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leading
        assert ended == [True]

    asyncio.run(body())
