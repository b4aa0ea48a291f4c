"""Counters of what the trainer of one consumer has received."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributed_input.api.proto import types_pb2


@dataclass(frozen=True)
class ConsumerStats:
    """Values that a consumer reports to the dispatcher; see `ConsumerHeartbeatRequest`."""

    epoch: int = 0
    rows: int = 0
    batches: int = 0
    bytes: int = 0
    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    buffer_fill: float = 0.0
    useful_workers: int = 0
    finished: bool = False
    waiting_for: str = ""
    mismatches: int = 0
    no_trainer: bool = False
    received: types_pb2.ReceivedTotals | None = None
    useful_limit: str = ""
    pauses: bool = False
    failed: str = ""

    def after(self, earlier: ConsumerStats) -> ConsumerStats:
        """Return these values with the counts of an earlier connection added."""
        return replace(
            self,
            rows=self.rows + earlier.rows,
            batches=self.batches + earlier.batches,
            bytes=self.bytes + earlier.bytes,
            wait_seconds=self.wait_seconds + earlier.wait_seconds,
            wall_seconds=self.wall_seconds + earlier.wall_seconds,
            received=self.received or earlier.received,
        )
