"""Leader election by a Lease: one replica works, the others stand by.

The election is that of the kubernetes library. The lock is not: the library's lock cannot create a
Lease (it fails its own validation), has no deadlines, and ends the election if the API server is
unreachable.
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
_END_SECONDS = 3.0
"""Time for which a leader waits for its work, which was cancelled."""


class LeaseLock(BaseLock):
    """The Lease, and the time of its last renewal by this replica."""

    def __init__(self, api: Api, name: str, namespace: str, identity: str) -> None:
        super().__init__(name, namespace, identity)
        self._api = api
        self._version = ""
        self._renewed = float("-inf")

    @property
    def is_held(self) -> bool:
        """Whether no other replica can be the leader yet."""
        return time.monotonic() - self._renewed < LEASE_SECONDS

    async def get(self, name: str, namespace: str) -> Any:
        """Return (True, record), or (False, ApiException). Its body has the status as "code"."""
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
            spec.get("holderIdentity") or None,  # Released: the library would treat "" as a holder.
            str(seconds) if seconds else None,
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        """Create the Lease. Return whether this replica holds it."""
        return await self._write("POST", LEASE.path(namespace), {"name": name}, election_record)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Update the Lease as it was last read. Return whether that succeeded."""
        meta = {"name": name, "resourceVersion": self._version}
        return await self._write("PUT", LEASE.path(namespace, name), meta, updated_record)

    async def release(self) -> None:
        """Release the Lease if this replica holds it, so that another takes over at once."""
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
        started = time.monotonic()  # The server may count the renewal from here on.
        try:
            await self._call(method, path, body)
        except ApiError as error:
            _log.warning("cannot write the lease: %s", error)
            return False
        if record.holder_identity == self.identity:
            self._renewed = started
        return True

    def _acquired(self, record: LeaderElectionRecord, now: str) -> str:
        """Return the time since which this replica leads: the record's if this replica wrote it."""
        kept = record.acquire_time
        return kept if self.is_held and kept and kept.endswith("Z") else now

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await self._api.request(method, path, body=body)
        except TimeoutError:
            raise ApiError(0, "Unreachable", f"{method} {path}: no response in time") from None


async def run_as_leader(lock: LeaseLock, work: Callable[[], Awaitable[None]]) -> None:
    """Wait until this replica leads, then run `work` to its end. Raises what `work` raises.

    If something cancels `work`, this is its end, too.

    If the lease is lost, the process ends at once: another replica may write already.
    """
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    leading: set[asyncio.Task[Any]] = set()

    async def started() -> None:
        if task := asyncio.current_task():
            leading.add(task)
        try:
            await work()
        except asyncio.CancelledError:
            # For example by kopf: after SIGTERM, it cancels what still runs, such as requests that
            # wait for their turn. Without an end, this process would keep the Lease forever.
            ended.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised below
            ended.set_exception(error)
        else:
            ended.set_result(None)

    async def stopped() -> None:
        if not ended.done():
            _log.critical("lost the lease: exiting, because another replica may lead")
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
        await _end(leading)


async def _end(work: set[asyncio.Task[Any]]) -> None:
    """Cancel the work, which the election leaves running, and wait for its end.

    It would otherwise see that the caller gives the Lease back, and end the process.
    """
    for task in work:
        task.cancel()
    if work:
        await asyncio.wait(work, timeout=_END_SECONDS)
