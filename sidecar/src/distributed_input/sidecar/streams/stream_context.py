"""Values and counters that streams share."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from distributed_input.api import sidecar_memory
from distributed_input.sidecar.streams.epoch_plan import EpochPlan
from distributed_input.sidecar.streams.resume_states import ResumeStates
from distributed_input.sidecar.streams.worker_pool import WorkerPool


@dataclass
class SourceStats:
    """What was read of one source of a mixture: rows, and the time that steps waited for them."""

    rows: int = 0
    wait_seconds: float = 0.0


@dataclass
class StreamStats:
    """Counters of all streams of one input, for metrics. Guarded by the GIL.

    Attributes:
        rows: rows received.
        bytes: bytes of those rows.
        replays: streams opened behind the first row of their split.
        mismatches: replays whose rows differed from those received before, or that ended earlier.
        reconnects: streams opened again, by the class of the error.
        waiting: what the input waits for now, by the part of it that waits.
        sources: what steps have taken of each source of a mixture, by its name.
    """

    rows: int = 0
    bytes: int = 0
    replays: int = 0
    mismatches: int = 0
    reconnects: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, str] = field(default_factory=dict)
    sources: dict[str, SourceStats] = field(default_factory=dict)


@dataclass
class StreamContext:
    """Values that all streams of one epoch share.

    Attributes:
        plan: the epoch that is read.
        pool: workers to read from.
        stats: counters of the input.
        lock: guards all streams of the epoch.
        arrived: condition on `lock`, notified when a stream has received something.
        timeout_seconds: time without progress after which a stream fails.
        differences: descriptions of the replays that made other rows, oldest first.
        queue_bytes: size at which the queue of a stream is full. It depends on their number.
        step_rows: rows that a step takes from each partition.
        most_head_bytes: maximum of `head_bytes`, unless `queue_bytes` is more.
        states: saved states of the splits that are read.
    """

    plan: EpochPlan
    pool: WorkerPool
    stats: StreamStats
    lock: threading.Lock
    arrived: threading.Condition
    timeout_seconds: float
    queue_bytes: int = 1 << 20
    step_rows: int = 1
    most_head_bytes: int = 0
    differences: list[str] = field(default_factory=list)
    states: ResumeStates = field(default_factory=ResumeStates)

    @property
    def head_bytes(self) -> int:
        """Return the size at which the queue is full of a split that steps take rows from.

        It has the rows of one step. With less, workers would compute these rows for one partition
        after the other: the step takes them in this order.
        """
        step = self.stats.bytes * self.step_rows // max(1, self.stats.rows)
        return max(self.queue_bytes, min(step, self.most_head_bytes))

    @property
    def block_bytes(self) -> int:
        """Return the size of the largest block that a stream requests."""
        return sidecar_memory.block_bytes(self.queue_bytes)
