"""Leader election by a Lease: one replica works, the others stand by.

The library's election, with what it lacks: a deadline on every call, and no exception where the API
server cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

_log = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2
_CALL_SECONDS = 3.0
_UNREACHABLE = (aiohttp.ClientError, OSError, TimeoutError)


class Lock(LeaseLock):
    """The Lease; knows how old the last renewal is."""

    def __init__(self, name: str, namespace: str, identity: str, client: ApiClient) -> None:
        super().__init__(name, namespace, identity, client)
        self._renewed = float("-inf")

    @property
    def fresh(self) -> bool:
        """Whether nobody else can be the leader yet."""
        return time.monotonic() - self._renewed < LEASE_SECONDS

    async def get(self, name: str, namespace: str) -> Any:
        """As the library's; unreachable counts as refused."""
        try:
            return await asyncio.wait_for(super().get(name, namespace), _CALL_SECONDS)
        except _UNREACHABLE as error:
            return False, ApiException(status=0, reason=f"no answer: {error!r}")

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        """As the library's."""
        return await self._write(super().create(name, namespace, election_record))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """As the library's."""
        return await self._write(super().update(name, namespace, updated_record))

    async def _write(self, call: Awaitable[bool]) -> bool:
        started = time.monotonic()  # the Lease may have been renewed that early
        try:
            written = await asyncio.wait_for(call, _CALL_SECONDS)
        except _UNREACHABLE:
            return False
        if written:
            self._renewed = started
        return written

    async def release(self) -> None:
        """Let another replica take over at once, where this one leads."""
        held, record = await self.get(self.name, self.namespace)
        if held and record and record.holder_identity == self.identity:
            record.lease_duration = "1"
            self._renewed = float("-inf")
            await self.update(self.name, self.namespace, record)


async def lead(lock: Lock, work: Callable[[], Awaitable[None]]) -> None:
    """Wait until this replica leads, then run `work` to its end; raises what it raises.

    Where the lead is lost the process ends on the spot: another replica may write already.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def started() -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised below, where someone listens
            ended.set_exception(error)
        else:
            ended.set_result(None)

    async def stopped() -> None:
        if not ended.done():
            _log.critical("the lease is lost: ending, for another replica may lead")
            os._exit(1)

    election = LeaderElection(
        Config(lock, LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, started, stopped)
    )
    running = asyncio.create_task(election.run())
    try:
        await ended
    finally:
        running.cancel()
