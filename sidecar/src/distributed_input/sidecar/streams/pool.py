"""The workers a sidecar may open streams on, and which one to take for a split.

What `assignment.place` says of the workers that are there: every consumer of every job of a
dataset says the same, so that a worker makes a split once for all of them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import grpc

from distributed_input.api.hashing import mix
from distributed_input.api.proto import dispatcher_pb2, worker_pb2
from distributed_input.assignment.splits import place
from distributed_input.runtime.credentials import Credentials
from distributed_input.runtime.serving import open_channel
from distributed_input.runtime.stubs import Stub, identity

_FORGIVE_SECONDS = 2.0  # a worker that just failed is taken again after this, or if none is left


@dataclass
class _Member:
    info: dispatcher_pb2.WorkerInfo
    channel: grpc.Channel
    stub: Stub
    key: int
    open: int = 0  # streams
    failed_at: float = float("-inf")


# All streams of a turn ask the same.
_placed = functools.lru_cache(maxsize=64)(place)


def _stub(channel: grpc.Channel) -> Stub:
    """A worker's calls; blocks stay bytes, to be decoded without a copy."""
    service = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
    return Stub(channel, service, {"Stream": (None, identity)})


class WorkerPool:
    """Thread-safe; `update` is called with each answer of the dispatcher."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._members: dict[str, _Member] = {}
        self._changed = threading.Condition()

    def update(self, infos: Iterable[dispatcher_pb2.WorkerInfo]) -> None:
        """Replace the membership; channels of workers that left are closed when unused."""
        told = {info.worker_id: info for info in infos}
        with self._changed:
            for gone in self._members.keys() - told.keys():
                member = self._members[gone]
                member.info.draining = True
                if not member.open:
                    member.channel.close()
                    del self._members[gone]
        self.add(told.values())

    def add(self, infos: Iterable[dispatcher_pb2.WorkerInfo]) -> None:
        """Take up workers, or what is new about known ones."""
        with self._changed:
            for info in infos:
                known = self._members.get(info.worker_id)
                if known:
                    known.info = info
                    continue
                channel = open_channel(info.address, self._credentials)
                key = mix(*info.worker_id.encode())
                self._members[info.worker_id] = _Member(info, channel, _stub(channel), key)
            self._changed.notify_all()

    def acquire(self, turns: tuple[tuple[int, ...], ...], split: int) -> tuple[str, Stub] | None:
        """A worker for a split, counted as loaded until `release`; None where there is none.

        Args:
            turns: as `assignment.place` takes them.
            split: key of one of those.
        """
        with self._changed:
            now = time.monotonic()
            able = [m for m in self._members.values() if not m.info.draining]
            fresh = [m for m in able if now - m.failed_at > _FORGIVE_SECONDS]
            candidates = {m.key: m for m in fresh or able}
            if not candidates:
                return None
            chosen = candidates[_placed(turns, tuple(sorted(candidates)))[split]]
            chosen.open += 1
            return chosen.info.worker_id, chosen.stub

    def release(self, worker_id: str, failed: bool) -> None:
        """End of a stream that `acquire` counted."""
        with self._changed:
            member = self._members.get(worker_id)
            if member is None:
                return
            member.open -= 1
            if failed:
                member.failed_at = time.monotonic()
            self._changed.notify_all()

    def is_draining(self, worker_id: str) -> bool:
        """Whether a worker takes no new streams, or has left."""
        with self._changed:
            member = self._members.get(worker_id)
            return member is None or member.info.draining

    @property
    def open_streams(self) -> int:
        """Streams that were acquired and not yet released."""
        with self._changed:
            return sum(member.open for member in self._members.values())

    def wait(self, seconds: float) -> None:
        """Wait for a change of membership, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def wake(self) -> None:
        """End all waits now."""
        with self._changed:
            self._changed.notify_all()

    def any_stub(self) -> Stub | None:
        """Some worker, the longest unfailed first."""
        with self._changed:
            able = [m for m in self._members.values() if not m.info.draining]
            return min(able, key=lambda m: m.failed_at).stub if able else None

    def close(self) -> None:
        """Close all channels; open streams end with an error."""
        with self._changed:
            for member in self._members.values():
                member.channel.close()
            self._members.clear()
            self._changed.notify_all()
