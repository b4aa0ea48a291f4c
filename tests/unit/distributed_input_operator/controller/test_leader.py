"""A leader whose work ends, in any way, ends as well."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord

from distributed_input_operator.controller import leader
from distributed_input_operator.controller.leader import LeaseLock, run_as_leader
from distributed_input_operator.kube.api import ApiError

RECORD = LeaderElectionRecord("me", "15", "", "")


class LeaseApi:
    """An API server that has only the Lease."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.holders: list[str] = []
        """One for each write."""
        self.renewed = threading.Event()
        """Whether there were some writes."""
        self.broken: Exception | None = None
        """The error of the next request."""
        self.late = False

    async def request(self, method: str, path: str, *, body: Any = None) -> Any:
        broken, self.broken = self.broken, None
        if broken:
            raise broken
        if method != "GET":
            if self.late:  # Another write comes first.
                self.late = False
                self.holders.append("me")
                raise ApiError(409, "Conflict", path)
            self.holders.append(body["spec"]["holderIdentity"])
            if len(self.holders) > 2:
                self.renewed.set()
            meta = {"resourceVersion": "1", **body["metadata"]}
            self.lease = {**body, "metadata": meta}
        if self.lease is None:
            raise ApiError(404, "NotFound", path)
        return self.lease

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[LeaseLock]:
        api: Any = self
        yield LeaseLock(api, "lease", "operators", "me")


def lead(work: Any, api: LeaseApi | None = None) -> LeaseApi:
    api = api or LeaseApi()

    async def body() -> None:
        async with asyncio.timeout(20):
            await run_as_leader(api.connect, work)

    try:
        asyncio.run(body())
    finally:
        assert api.holders[-1] == "", "the lease is given back"
    return api


def test_the_end_of_the_work_is_the_end():
    async def work(_: LeaseLock) -> None:
        await asyncio.sleep(0)

    assert lead(work).holders[0] == "me"


def test_work_that_blocks_the_event_loop_delays_no_renewal(monkeypatch):
    monkeypatch.setattr(leader, "RETRY_SECONDS", 1)
    api = LeaseApi()

    async def work(lock: LeaseLock) -> None:
        assert api.renewed.wait(20)
        assert lock.is_held

    lead(work, api)


def test_an_error_of_the_election_is_raised_and_the_lease_given_back():
    api = LeaseApi()

    async def work(lock: LeaseLock) -> None:
        api.broken = ValueError("broken")
        await asyncio.Event().wait()

    with pytest.raises(ValueError, match="broken"):
        lead(work, api)


async def test_a_renewal_that_arrives_late_does_not_keep_the_lease():
    api = LeaseApi()
    async with api.connect() as lock:
        await lock.create("lease", "operators", RECORD)
        api.late = True
        await lock.release()
    assert api.holders == ["me", "me", ""]


def test_an_election_that_cannot_begin_is_an_error():
    def connect() -> Any:
        raise ValueError("no such file")

    async def work(_: LeaseLock) -> None: ...

    async def body() -> None:
        async with asyncio.timeout(20):
            await run_as_leader(connect, work)

    with pytest.raises(ValueError, match="no such file"):
        asyncio.run(body())


async def test_a_follower_that_is_cancelled_writes_nothing():
    api, read = LeaseApi(), threading.Event()
    times = dict.fromkeys(("acquireTime", "renewTime"), "2026-01-01T00:00:00.000000Z")
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, **times}
    api.lease = {"metadata": {"resourceVersion": "1"}, "spec": spec}

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[LeaseLock]:
        async with api.connect() as lock:
            asyncio.get_running_loop().call_later(0.01, read.set)
            yield lock

    async def work(_: LeaseLock) -> None: ...

    leading = asyncio.create_task(run_as_leader(connect, work))
    assert await asyncio.to_thread(read.wait, 20)
    leading.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await leading
    assert api.holders == []


def test_an_error_of_the_work_is_raised():
    async def work(_: LeaseLock) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        lead(work)


def test_work_that_something_else_cancels_ends():
    """After SIGTERM, kopf cancels the requests that still run, and so the work that waits."""

    async def work(_: LeaseLock) -> None:
        request = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(request.cancel)
        await asyncio.gather(request)

    with pytest.raises(asyncio.CancelledError):
        lead(work)


async def test_a_leader_that_is_cancelled_waits_until_its_work_has_ended():
    """The work would otherwise see that the Lease is given back, and end the process."""
    api, ended = LeaseApi(), []
    begun = asyncio.Event()

    async def work(_: LeaseLock) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(api.holders[-1])

    leading = asyncio.create_task(run_as_leader(api.connect, work))
    async with asyncio.timeout(20):
        await begun.wait()
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
    assert ended == ["me"]
    assert api.holders[-1] == ""
