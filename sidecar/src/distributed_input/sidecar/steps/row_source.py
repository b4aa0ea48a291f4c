"""The interfaces that an epoch uses: where its rows come from, and who waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from distributed_input.api.proto import types_pb2
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.streams.read_ahead import (
    LARGE_SPLITS,
    ReadAhead,
    UsefulWorkers,
)
from distributed_input.sidecar.streams.stream_context import StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool


class FactExchange(Protocol):
    """The exchange of facts with the other consumers, through the dispatcher."""

    def request_heartbeat(self) -> None:
        """Send and receive facts soon, without waiting for it."""

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        """Send all facts of now. Return whether the dispatcher confirmed them in `seconds`."""

    def check_run(self) -> None:
        """Raise ReplayError if the consumers of this run contradict each other."""

    @property
    def next_heartbeat(self) -> int:
        """The number of the next heartbeat."""

    def check_others(self, epoch: int, since: int, waited: float) -> None:
        """Raise an error if, since that heartbeat, another consumer sends no more facts."""


class WaitingTrainer(Protocol):
    """The trainer, as far as an epoch that waits for rows must know."""

    @property
    def has_unsent(self) -> bool:
        """Whether finished units are kept back, to be sent together."""

    @property
    def trainer_waits(self) -> bool:
        """Whether the trainer has reported that it waits."""

    def flush(self, cancelled: threading.Event) -> None:
        """Send the units that are kept back."""

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        """Send the trainer what is waited for, if it waits."""


@dataclass(frozen=True)
class RowSource:
    """Where the rows of a job come from.

    Attributes:
        job: the job, complete.
        pool: workers to read from.
        facts: facts about other consumers' partitions.
        exchange: exchange of these facts.
        stats: counters of the input.
        read_ahead: number of splits opened ahead in each partition, over all epochs.
        timeout_seconds: time without progress after which a wait fails.
        queue_bytes: function from the number of open streams to the size at which the queue of
            each is full.
        most_head_bytes: see `StreamContext`.
        most_useful: how many workers this consumer can use at most, and why not more.
        lineage: whether each unit names its rows.
    """

    job: types_pb2.Job
    pool: WorkerPool
    facts: PartitionFacts
    exchange: FactExchange
    stats: StreamStats
    read_ahead: ReadAhead
    timeout_seconds: float
    queue_bytes: Callable[[int], int] = lambda _streams: 1 << 20
    most_head_bytes: int = 0
    most_useful: UsefulWorkers = field(default_factory=UsefulWorkers)
    lineage: bool = False

    @property
    def useful(self) -> UsefulWorkers:
        """Return how many workers this consumer can use, and what limits them now.

        The number stays while queues are full: splits fill them faster with more workers.
        """
        limit = LARGE_SPLITS if self.read_ahead.only_heads_help else self.most_useful.limit
        return replace(self.most_useful, limit=limit)
