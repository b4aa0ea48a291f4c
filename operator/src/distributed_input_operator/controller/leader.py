"""Leader election by a Lease: one replica works, the others stand by.

The election is the library's. The lock is not: the library's cannot create a Lease (it fails its
own validation), sets no deadline, and lets an unreachable API server end the election.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

from kubernetes.aio.client import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.kinds import LEASE

_log = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2
_CALL_SECONDS = 3.0


class Lock(BaseLock):
    """The Lease; knows how old the last renewal is."""

    def __init__(self, api: Api, name: str, namespace: str, identity: str) -> None:
        super().__init__(name, namespace, identity)
        self._api = api
        self._version = ""
        self._renewed = float("-inf")

    @property
    def fresh(self) -> bool:
        """Whether nobody else can be the leader yet."""
        return time.monotonic() - self._renewed < LEASE_SECONDS

    async def get(self, name: str, namespace: str) -> Any:
        """(True, record), or (False, ApiException) whose body has the status as "code"."""
        try:
            lease = await self._call("GET", LEASE.path(namespace, name))
        except ApiError as error:
            failed = ApiException(status=error.status, reason=str(error))
            failed.body = json.dumps({"code": error.status})
            return False, failed
        self._version = lease["metadata"]["resourceVersion"]
        spec = lease.get("spec") or {}
        seconds = spec.get("leaseDurationSeconds")
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,  # given back: the library waits out "" as a name
            str(seconds) if seconds else None,
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        """Whether the Lease is ours now."""
        return await self._write("POST", LEASE.path(namespace), {"name": name}, election_record)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the Lease, as it was last read, is as `updated_record` says now."""
        meta = {"name": name, "resourceVersion": self._version}
        return await self._write("PUT", LEASE.path(namespace, name), meta, updated_record)

    async def release(self) -> None:
        """Let another replica take over at once, where this one leads."""
        held, record = await self.get(self.name, self.namespace)
        if held and record.holder_identity == self.identity:
            record.holder_identity = ""
            self._renewed = float("-inf")
            await self.update(self.name, self.namespace, record)

    async def _write(
        self, method: str, path: str, meta: Json, record: LeaderElectionRecord
    ) -> bool:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": record.holder_identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": self._acquired(record, now),
            "renewTime": now,
        }
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": meta, "spec": spec}
        started = time.monotonic()  # the renewal may count from that early
        try:
            await self._call(method, path, body)
        except ApiError as error:
            _log.warning("the lease could not be written: %s", error)
            return False
        if record.holder_identity == self.identity:
            self._renewed = started
        return True

    def _acquired(self, record: LeaderElectionRecord, now: str) -> str:
        """The time since which we lead: the record's, where that is one that we wrote."""
        kept = record.acquire_time
        return kept if self.fresh and kept and kept.endswith("Z") else now

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await self._api.request(method, path, body=body)
        except TimeoutError:
            raise ApiError(0, "Unreachable", f"{method} {path}: no answer in time") from None


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
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        await ended
    finally:
        running.cancel()
