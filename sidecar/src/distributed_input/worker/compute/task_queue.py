"""The order in which tasks that wait for a CPU are computed. No locks.

A job reads its splits in a known order. Rows of a later split wait in a queue until the splits
before it are read. So within a job, the split that is read first is computed first. Otherwise the
splits that are opened ahead, which are many more, would delay the rows that the trainer waits for.
They lose nothing: their rows are needed later. Partitions may be at different indexes, because
splits differ in length. Then the lower index comes first.

Jobs have their turns one after the other, because their orders cannot be compared.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

Reader = tuple[str, int]
"""A job, and the seed of its order: in parallel epochs, each trainer has its own."""
Order = tuple[int, int]
"""When a reader reads a split: epoch, index in its partition. The lower is the first."""


class Need(NamedTuple):
    """Who reads a split, and when."""

    reader: Reader = ("", 0)
    order: Order = (0, 0)


_FIRST = Need()


class ComputeTask:
    """Something to compute.

    Args:
        run: computes it and returns the tasks that are to follow. It must not raise.
        needs: the needs of the streams that wait for it.

    Attributes:
        orders: when the streams that wait for it need rows, the first of each reader.
        waits: whether the task is in a queue.
    """

    def __init__(self, run: Callable[[], Iterable[ComputeTask]], *needs: Need) -> None:
        self.run = run
        self.orders: dict[Reader, Order] = {}
        for reader, order in needs or (_FIRST,):
            self.orders[reader] = min(order, self.orders.get(reader, order))
        self.waits = False


class TaskQueue:
    """The tasks that wait. The caller holds a lock."""

    def __init__(self) -> None:
        # Each reader has a heap. The first reader has the next turn.
        self._readers: dict[Reader, list[tuple[Order, int, ComputeTask]]] = {}
        self._numbers = itertools.count()
        self._length = 0

    def __len__(self) -> int:
        """Return the number of tasks that wait."""
        return self._length

    def add(self, task: ComputeTask) -> None:
        """Add a task."""
        task.waits = True
        self._length += 1
        for reader, order in task.orders.items():
            self._push(reader, order, task)

    def add_need(self, task: ComputeTask, need: Need) -> None:
        """Record that a further stream waits for a task."""
        known = task.orders.get(need.reader)
        if known is None or need.order < known:
            task.orders[need.reader] = need.order
            if task.waits:
                self._push(need.reader, need.order, task)

    def remove(self, task: ComputeTask) -> None:
        """Remove a task if it waits."""
        if task.waits:
            task.waits = False
            self._length -= 1

    def delays(self, task: ComputeTask) -> bool:
        """Return whether a task that runs is to be read after one of the same reader that waits."""
        for reader, order in task.orders.items():
            heap = self._readers.get(reader, [])
            while heap and not heap[0][2].waits:
                heapq.heappop(heap)
            if heap and heap[0][0] < order:
                return True
        return False

    def _push(self, reader: Reader, order: Order, task: ComputeTask) -> None:
        heap = self._readers.setdefault(reader, [])
        heapq.heappush(heap, (order, next(self._numbers), task))

    def pop(self) -> ComputeTask | None:
        """Remove and return the task to compute next. None if there is none.

        Readers have their turns one after the other. Within a reader, the first split comes first.
        Tasks for splits of equal order are served in the order in which they were added.
        """
        for reader in list(self._readers):
            heap = self._readers.pop(reader)
            task = _pop_waiting(heap)
            if heap:
                self._readers[reader] = heap  # behind the others
            if task is not None:
                task.waits = False
                self._length -= 1
                return task
        return None


def _pop_waiting(heap: list[tuple[Order, int, ComputeTask]]) -> ComputeTask | None:
    """Remove and return the first task that still waits, or None.

    A task with several needs has several entries. The first that is popped removes it.
    """
    while heap:
        task = heapq.heappop(heap)[2]
        if task.waits:
            return task
    return None
