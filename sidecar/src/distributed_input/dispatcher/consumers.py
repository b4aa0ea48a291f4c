"""The consumers of one job, by heartbeat, and who of two stands back. Pure.

A job has one run at a time, and a run has one number of consumers. So two live consumers of one
job exclude each other where they have the same index, or where they name another count. The
newer incarnation stays, the older is *fenced*: its heartbeats are answered with that, and it
ends with an error. A run on another number of trainers hence takes over with its first
heartbeat, and one trainer of a run that has a wrong count is told, with both counts.

Incarnations sort by age (they begin with the time). Only live consumers fence: an incarnation
from a clock that ran ahead cannot keep its successors out once it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto.dispatcher_pb2 import ConsumerHeartbeatRequest
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.runtime.statuses import InvalidRequestError


@dataclass
class LiveConsumer:
    """A live consumer: its last heartbeat (without facts) and when it came."""

    last: ConsumerHeartbeatRequest
    heard: float


class ConsumerRegistry:
    """The live consumers of one job."""

    def __init__(self, limits: DispatcherLimits) -> None:
        self._limits = limits
        self._live: dict[str, LiveConsumer] = {}  # by incarnation
        self._done: set[int] = set()  # indices that finished or left, of the last run
        self._count = 0  # of its consumers
        self.losses = 0
        """ConsumerRegistry that fell silent before they had finished."""
        self.fenced = 0
        """Heartbeats answered with a fence."""

    def beat(self, now: float, beat: ConsumerHeartbeatRequest) -> str | None:
        """Note a heartbeat; the reason why its sender is fenced, or None: it holds its index.

        Raises InvalidRequestError naming the field, TerminalError where there are too many.
        """
        check(beat)
        self.expire(now)
        rivals = [c for c in self._live.values() if _exclude(c.last, beat)]
        newest = max(rivals, key=lambda c: c.last.incarnation, default=None)
        if newest is not None and newest.last.incarnation > beat.incarnation:
            self.fenced += 1
            return _reason(newest.last, beat)
        for rival in rivals:  # itself among them, if it lives
            del self._live[rival.last.incarnation]
        if len(self._live) >= self._limits.consumers:
            raise TerminalError(f"job {beat.job}: more than {self._limits.consumers} consumers")
        self._note(beat, beat.finished)
        last = ConsumerHeartbeatRequest()
        last.CopyFrom(beat)
        last.ClearField("facts")
        self._live[beat.incarnation] = LiveConsumer(last, now)
        return None

    def release(self, incarnation: str) -> None:
        """Forget a consumer that has left the job."""
        left = self._live.pop(incarnation, None)
        if left is not None:
            self._note(left.last, done=True)

    def renew(self) -> None:
        """The job was registered (again): whoever was done with it may come again."""
        self._done.clear()

    @property
    def over(self) -> bool:
        """Whether all consumers of the last run have finished or left."""
        return 0 < self._count == len(self._done)

    def _note(self, beat: ConsumerHeartbeatRequest, done: bool) -> None:
        if beat.count != self._count:
            self._count = beat.count
            self._done.clear()
        if done and beat.count <= self._limits.consumers:
            self._done.add(beat.index)
        else:
            self._done.discard(beat.index)

    def expire(self, now: float) -> None:
        """Drop those that have been silent for too long."""
        oldest = now - self._limits.expiry
        for incarnation in [key for key, c in self._live.items() if c.heard < oldest]:
            self.losses += not self._live.pop(incarnation).last.finished

    def live(self, now: float) -> list[LiveConsumer]:
        """The live consumers, by index."""
        self.expire(now)
        return sorted(self._live.values(), key=lambda c: c.last.index)

    def last_held(self, now: float) -> float | None:
        """When a live consumer that has not finished was last heard; None where there is none."""
        self.expire(now)
        return max((c.heard for c in self._live.values() if not c.last.finished), default=None)

    def epochs(self) -> tuple[int, int]:
        """The lowest and the highest epoch of live consumers; (0, 0) where there are none."""
        epochs = [c.last.epoch for c in self._live.values()] or [0]
        return min(epochs), max(epochs)


def check(beat: ConsumerHeartbeatRequest) -> None:
    """Refuse a heartbeat with fields that cannot be: InvalidRequestError names the field."""
    if not 0 < len(beat.incarnation) <= 512:
        raise InvalidRequestError("incarnation: must have 1 to 512 characters")
    if not beat.index < beat.count:
        raise InvalidRequestError(
            f"index: {beat.index} is not below count {beat.count}: the consumer index counts from 0"
        )


def _exclude(one: ConsumerHeartbeatRequest, other: ConsumerHeartbeatRequest) -> bool:
    return one.index == other.index or one.count != other.count


def _reason(newer: ConsumerHeartbeatRequest, older: ConsumerHeartbeatRequest) -> str:
    holder = f"consumer {newer.index} of {newer.count} (incarnation {newer.incarnation})"
    if newer.count == older.count:
        return (
            f"{holder} of job {older.job} started later with the same index; if both should run, "
            "give each a consumer index of its own"
        )
    return (
        f"{holder} of job {older.job} started later, with a count of {newer.count}, not "
        f"{older.count}; if both are of one run, give both the same consumer count"
    )
