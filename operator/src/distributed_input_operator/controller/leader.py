"""Leader election by a Lease: one replica works, the others stand by.

The election is that of the kubernetes library. The lock is not: the library's lock cannot create a
Lease (it fails its own validation), has no deadlines, and ends the election if the API server is
unreachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timezone
from functools import partial
from typing import Any

from kubernetes.aio.client import ApiClient, ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import LEASE

_log = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_SECONDS = 10
RETRY_SECONDS = 2
_CALL_SECONDS = 3.0
_END_SECONDS = 2.0
"""Time for which a leader waits for its work, which was cancelled, and then for the lease."""


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
        for _ in range(2):  # A renewal that was cancelled may still arrive after the first read.
            held, record = await self.get(self.name, self.namespace)
            if not held or record.holder_identity != self.identity:
                return
            record.holder_identity = ""
            self._renewed = float("-inf")
            if await self.update(self.name, self.namespace, record):
                return

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


@contextlib.asynccontextmanager
async def connect(name: str, namespace: str, identity: str) -> AsyncIterator[LeaseLock]:
    """Yield the lock of a Lease, with connections of this event loop."""
    async with ApiClient() as client:
        yield LeaseLock(Api(client), name, namespace, identity)


async def run_as_leader(
    connect: Callable[[], AbstractAsyncContextManager[LeaseLock]],
    work: Callable[[LeaseLock], Coroutine[Any, Any, None]],
) -> None:
    """Wait until this replica leads, then run `work` to its end. Raises what `work` raises.

    The election has a thread of its own, so that no work delays a renewal. It gives the lease back
    when the work has ended, or does not end in time. If the lease is lost, the process ends at
    once: another replica may write already.

    Args:
        connect: returns the lock, with connections of the event loop that enters it.
        work: gets the lock. If something cancels it, this is its end, too.
    """
    election = _Election(connect)
    running = asyncio.create_task(asyncio.to_thread(asyncio.run, election.run()))
    leads, failed = election.leads, election.failed
    working: asyncio.Future[None] | None = None
    try:
        await asyncio.wait([leads, failed], return_when=asyncio.FIRST_COMPLETED)
        if leads.done():
            working = asyncio.create_task(work(leads.result()))
            await asyncio.wait([working, failed], return_when=asyncio.FIRST_COMPLETED)
        await (failed if working is None or not working.done() else working)
    finally:
        if working:  # It would otherwise see that the lease is given back, and end the process.
            working.cancel()
            await asyncio.wait([working], timeout=_END_SECONDS)
        election.end()
        await asyncio.wait([running], timeout=_END_SECONDS)


class _Election:
    """The election, and the end of the lease. `run` belongs to an event loop of its own.

    Attributes:
        leads: gets the lock when this replica leads.
        failed: gets the error that ends the election.
    """

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[LeaseLock]]) -> None:
        self._connect = connect
        self._caller = asyncio.get_running_loop()
        self.leads: asyncio.Future[Any] = self._caller.create_future()
        self.failed: asyncio.Future[Any] = self._caller.create_future()
        self._ending = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    async def run(self) -> None:
        """Take part in the election until `end` is called, then give the lease back."""
        ended = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
        if self._ending.is_set():
            return
        try:
            async with self._connect() as lock:
                started = partial(self._started, lock)
                times = LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS
                election = LeaderElection(Config(lock, *times, started, self._stopped))
                electing, ending = map(asyncio.create_task, (election.run(), ended.wait()))
                await asyncio.wait([electing, ending], return_when=asyncio.FIRST_COMPLETED)
                if not ending.done() and (error := electing.exception()):
                    self._tell(self.failed.set_exception, error)
                    await ending
                electing.cancel()
                await asyncio.gather(electing, return_exceptions=True)
                await lock.release()
        except Exception as error:  # noqa: BLE001 - the caller raises it
            self._tell(self.failed.set_exception, error)

    def end(self) -> None:
        """Give the lease back. Thread-safe."""
        self._ending.set()
        with contextlib.suppress(RuntimeError):  # It has ended.
            self._wake()

    async def _started(self, lock: LeaseLock) -> None:
        self._tell(self.leads.set_result, lock)

    async def _stopped(self) -> None:
        if not self._ending.is_set():
            _log.critical("lost the lease: exiting, because another replica may lead")
            os._exit(1)

    def _tell(self, report: Callable[[Any], None], value: Any) -> None:
        """Call a function in the caller's event loop, unless the caller waits only for the end."""

        def tell() -> None:
            if not self._ending.is_set():
                report(value)

        with contextlib.suppress(RuntimeError):  # It has ended.
            self._caller.call_soon_threadsafe(tell)
