"""How long a trainer has read and waited, also between its reports. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributed_input.api.proto import trainer_pb2, types_pb2


@dataclass(frozen=True)
class TrainerTimes:
    """The times that a trainer reported last. It reports a long wait only now and then.

    Attributes:
        wait_seconds: time that the trainer has waited, on this connection.
        wall_seconds: time since its first unit.
        received: what it has read from all sidecars. None: unknown.
        waits_since: the time of the report that it waits. None: it does not wait, or for its
            first unit.
    """

    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    received: types_pb2.ReceivedTotals | None = None
    waits_since: float | None = None

    def after(self, progress: trainer_pb2.Progress, now: float) -> TrainerTimes:
        """Return the times after a report at the time `now`. They never decrease.

        The times until now include the few milliseconds that a report of the end of a wait takes.
        """
        before = self.until(now).stopped()
        if progress.waiting and not progress.wall_seconds:
            return before
        return TrainerTimes(
            max(before.wait_seconds, progress.wait_seconds),
            max(before.wall_seconds, progress.wall_seconds),
            progress.received if progress.HasField("received") else before.received,
            now if progress.waiting else None,
        )

    def until(self, now: float) -> TrainerTimes:
        """Return the times at the time `now`: a wait that has not ended counts."""
        if self.waits_since is None or now <= self.waits_since:
            return self
        waited = now - self.waits_since
        received: types_pb2.ReceivedTotals | None = None
        if self.received is not None:
            received = types_pb2.ReceivedTotals()
            received.CopyFrom(self.received)
            received.wait_seconds += waited
            received.wall_seconds += waited
        return TrainerTimes(self.wait_seconds + waited, self.wall_seconds + waited, received, now)

    def stopped(self) -> TrainerTimes:
        """Return the same times of a trainer that does not wait."""
        return replace(self, waits_since=None)
