"""Readers of an epoch, with facts and rows that the test gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.order import splits as assignment
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from distributed_input.sidecar.streams.partition_reader import PartitionPosition


class GivenFacts:
    """The reader of an epoch, with facts that change with each wait for them.

    Attributes:
        heartbeats: number of heartbeats that were requested.
        on_wait: called by each wait.
    """

    def __init__(self, job: types_pb2.Job, *reports: Sequence[PartitionFact]) -> None:
        self.source, self.plan, self.exchange = self, self, self
        self.reported_rows = self.heartbeats = 0
        self.job, self.facts, self.timeout_seconds, self.epoch = job, PartitionFacts(), 10.0, 0
        self.on_wait: Callable[[], None] = lambda: None
        self._reports = list(reports)
        self.facts.merge(self._reports.pop(0))

    def wait_facts(self, what: str, deadline: ProgressDeadline) -> None:
        """Merge the next facts, instead of a wait."""
        if deadline.has_passed:
            raise UnavailableError(what)
        self.on_wait()
        self.facts.merge(self._reports.pop(0))

    def request_heartbeat(self) -> None:
        """Count the requests. Merge nothing: facts come with the waits."""
        self.heartbeats += 1

    @property
    def unread(self) -> int:
        """The number of reports that nothing waited for."""
        return len(self._reports)


class GivenTotals(GivenFacts):
    """The reader of an epoch, whose own partitions have the totals that the test gives.

    Attributes:
        opened: (partition, row) of each call of `open`.
    """

    def __init__(
        self, job: types_pb2.Job, totals: Mapping[int, int], *reports: Sequence[PartitionFact]
    ) -> None:
        super().__init__(job, *(reports or [[]]))
        self.deal = assignment.deal(job.seed, 0, job.num_splits, job.partitions)
        self.partitions: dict[int, Any] = {}
        self.opened: list[tuple[int, int]] = []
        self._totals = totals

    def open(self, partition: int, start: PartitionPosition) -> None:
        """Open a partition."""
        self.opened.append((partition, start.rows))
        self.partitions[partition] = SimpleNamespace(rows=start.rows, ended=False)

    def locate(self, partition: int) -> int | None:
        """Return the total of a partition that ends before its start, else None."""
        opened, total = self.partitions[partition], self._totals.get(partition)
        if total is None or opened.rows <= total:
            return None
        opened.ended = True
        return total
