"""Membership of workers, by heartbeat. Pure: the time is passed in, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto.dispatcher_pb2 import WorkerHeartbeatRequest, WorkerInfo
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.runtime.statuses import InvalidRequestError


@dataclass
class _Worker:
    info: WorkerInfo
    heard: float


class WorkerRegistry:
    """The workers that are alive.

    Of two at one address the one that came later is the one that serves there: the other is its
    earlier life, or advertises an address that is not its own. It is refused for as long as the
    later one lives.
    """

    def __init__(self, limits: DispatcherLimits) -> None:
        self._limits = limits
        self._workers: dict[str, _Worker] = {}
        self._at: dict[str, str] = {}  # address -> id of the worker that serves there
        self._superseded: dict[str, float] = {}  # id -> when last heard
        self.losses = 0
        """WorkerRegistry that fell silent without draining."""

    def beat(self, now: float, beat: WorkerHeartbeatRequest) -> None:
        """Note a worker's heartbeat.

        Raises InvalidRequestError naming the field, TerminalError where a later worker serves at
        its address or there are too many workers.
        """
        _check(beat)
        self.expire(now)
        holder = self._at.get(beat.address)
        if holder is not None and beat.worker_id in self._superseded:
            self._superseded[beat.worker_id] = now
            raise TerminalError(
                f"worker {beat.worker_id}: another worker, {holder}, started later and serves at "
                f"{beat.address}: give each worker an --advertise of its own"
            )
        self._superseded.pop(beat.worker_id, None)
        known = self._workers.get(beat.worker_id)
        if known is None and len(self._workers) >= self._limits.workers:
            raise TerminalError(f"more than {self._limits.workers} workers: start fewer")
        if known is not None and known.info.address != beat.address:
            self._at.pop(known.info.address, None)
        if holder is not None and holder != beat.worker_id:
            del self._workers[holder]
            self._superseded[holder] = now
        self._at[beat.address] = beat.worker_id
        self._workers[beat.worker_id] = _Worker(_info(beat), now)

    def expire(self, now: float) -> None:
        """Drop those that have been silent for too long."""
        oldest = now - self._limits.expiry
        for worker_id in [key for key, worker in self._workers.items() if worker.heard < oldest]:
            gone = self._workers.pop(worker_id).info
            self._at.pop(gone.address, None)
            self.losses += not gone.draining
        for worker_id in [key for key, heard in self._superseded.items() if heard < oldest]:
            del self._superseded[worker_id]

    def live(self, now: float) -> list[WorkerInfo]:
        """The workers that are alive, by id; those draining too."""
        self.expire(now)
        return [self._workers[worker_id].info for worker_id in sorted(self._workers)]

    def oldest_heartbeat(self, now: float) -> float:
        """Age in seconds of the oldest heartbeat of those alive, 0 where there are none."""
        return max((now - worker.heard for worker in self._workers.values()), default=0.0)


def _check(beat: WorkerHeartbeatRequest) -> None:
    for name, value in (("worker_id", beat.worker_id), ("address", beat.address)):
        if not 0 < len(value) <= 512:
            raise InvalidRequestError(f"{name}: must have 1 to 512 characters, has {len(value)}")


def _info(beat: WorkerHeartbeatRequest) -> WorkerInfo:
    return WorkerInfo(
        worker_id=beat.worker_id,
        address=beat.address,
        draining=beat.draining,
        open_streams=beat.open_streams,
        rows=beat.rows,
        busy_seconds=beat.busy_seconds,
        node=beat.node,
    )
