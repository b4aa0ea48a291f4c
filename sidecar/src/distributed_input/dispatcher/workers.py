"""The registry of live workers, by heartbeat. Pure, with the time in seconds as an argument."""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto.dispatcher_pb2 import WorkerHeartbeatRequest, WorkerInfo
from distributed_input.api.stalls import MAX_STALLED
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.link.statuses import InvalidRequestError


@dataclass
class _Worker:
    info: WorkerInfo
    received: float


class WorkerRegistry:
    """The live workers.

    If two workers have the same address, the one that started later serves there. The other is its
    earlier start, or advertises a wrong address. It is rejected while the later one is alive. A
    worker that only one pod uses has an address within that pod.
    """

    def __init__(self, limits: DispatcherLimits) -> None:
        self._limits = limits
        self._workers: dict[str, _Worker] = {}
        self._at: dict[tuple[str, str], str] = {}  # worker id by pod and address
        self._superseded: dict[str, float] = {}  # time of the last heartbeat by id
        self.losses = 0
        """Number of workers that expired without draining."""

    def beat(self, now: float, beat: WorkerHeartbeatRequest) -> None:
        """Record a worker's heartbeat.

        Raises:
            InvalidRequestError: names the invalid field.
            TerminalError: a later worker serves at its address, or there are too many workers.
        """
        _check(beat)
        self.expire(now)
        place = (beat.pod, beat.address)
        holder = self._at.get(place)
        if holder is not None and beat.worker_id in self._superseded:
            self._superseded[beat.worker_id] = now
            raise TerminalError(
                f"worker {beat.worker_id}: another worker, {holder}, started later and serves at "
                f"{beat.address}: set a different --advertise for each worker"
            )
        self._superseded.pop(beat.worker_id, None)
        known = self._workers.get(beat.worker_id)
        if known is None and len(self._workers) >= self._limits.workers:
            raise TerminalError(f"more than {self._limits.workers} workers: start fewer")
        if known is not None and _place(known.info) != place:
            self._at.pop(_place(known.info), None)
        if holder is not None and holder != beat.worker_id:
            del self._workers[holder]
            self._superseded[holder] = now
        self._at[place] = beat.worker_id
        self._workers[beat.worker_id] = _Worker(_info(beat), now)

    def expire(self, now: float) -> None:
        """Remove workers without a recent heartbeat."""
        oldest = now - self._limits.expiry
        for worker_id in [key for key, worker in self._workers.items() if worker.received < oldest]:
            gone = self._workers.pop(worker_id).info
            self._at.pop(_place(gone), None)
            self.losses += not gone.draining
        for worker_id in [key for key, received in self._superseded.items() if received < oldest]:
            del self._superseded[worker_id]

    def live(self, now: float) -> list[WorkerInfo]:
        """Return the live workers, by id, including those that drain."""
        self.expire(now)
        return [self._workers[worker_id].info for worker_id in sorted(self._workers)]

    def usable_from(self, now: float, pod: str) -> list[WorkerInfo]:
        """Return the live workers that a sidecar in `pod` may use, by id. "": in no such pod."""
        return [info for info in self.live(now) if info.pod in ("", pod)]

    def oldest_heartbeat(self, now: float) -> float:
        """Return the age in seconds of the oldest heartbeat of live workers; 0 without workers."""
        return max((now - worker.received for worker in self._workers.values()), default=0.0)


def _place(info: WorkerInfo) -> tuple[str, str]:
    return info.pod, info.address


def _check(beat: WorkerHeartbeatRequest) -> None:
    for name, value in (("worker_id", beat.worker_id), ("address", beat.address)):
        if not 0 < len(value) <= 512:
            raise InvalidRequestError(f"{name}: must have 1 to 512 characters, has {len(value)}")
    if len(beat.pod) > 512:
        raise InvalidRequestError(f"pod: must have at most 512 characters, has {len(beat.pod)}")


def _info(beat: WorkerHeartbeatRequest) -> WorkerInfo:
    return WorkerInfo(
        worker_id=beat.worker_id,
        address=beat.address,
        draining=beat.draining,
        open_streams=beat.open_streams,
        rows=beat.rows,
        busy_seconds=beat.busy_seconds,
        node=beat.node,
        pod=beat.pod,
        parallelism=beat.parallelism,
        permit_seconds=beat.permit_seconds,
        stalled=beat.stalled[:MAX_STALLED],
        capacity=beat.capacity,
        buffer_bytes=beat.buffer_bytes,
        cpu_seconds=beat.cpu_seconds,
        failure=beat.failure if beat.HasField("failure") else None,
    )
