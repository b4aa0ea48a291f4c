"""Facts about the partitions of other consumers, as the dispatcher exchanges them.

Facts may be late or missing at any time. Code that needs one waits for it with a deadline, or
assumes less.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.order.facts import FactStore, PartitionKnowledge


class OtherConsumerError(DatasetFnError):
    """An error has ended the epoch of another consumer, which this one waits for."""


class LeftEpochError(UnavailableError):
    """Another consumer reads a later epoch, and has not ended the one that this one waits for."""


class PartitionFacts:
    """The facts about the partitions of a job, by epoch. Thread-safe.

    Attributes:
        changed: notified when facts were merged.
        merged: number of times that facts were merged.
    """

    def __init__(self) -> None:
        self._known = FactStore()
        self.changed = threading.Condition()
        self.merged = 0

    def merge(self, facts: Iterable[dispatcher_pb2.PartitionFact]) -> list[str]:
        """Add facts that the dispatcher has sent. Return descriptions of contradictions."""
        with self.changed:
            conflicts = self._known.merge(facts)
            self.merged += 1
            self.changed.notify_all()
            return conflicts

    def of(self, epoch: int, partition: int) -> PartitionKnowledge:
        """Return the facts about a partition."""
        with self.changed:
            return self._known.of(epoch, partition)

    def clear(self) -> None:
        """Drop all facts, because another run follows."""
        with self.changed:
            self._known = FactStore()

    def trim(self, most: int) -> None:
        """Drop old borders of splits; see `FactStore.trim`."""
        with self.changed:
            self._known.trim(most)

    def forget_before(self, epoch: int) -> None:
        """Drop the facts of epochs before `epoch`."""
        with self.changed:
            self._known.forget(epoch)
