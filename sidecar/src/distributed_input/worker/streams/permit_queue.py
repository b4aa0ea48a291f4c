"""The order in which waiting threads get permits. No locks.

A job reads its splits in a known order. Rows of a later split wait in a queue until the splits
before it are read. So within a job, the split that is read first gets permits first. Otherwise the
splits that are opened ahead, which are many more, would delay the rows that the trainer waits for.
They lose nothing: their rows are needed later. Partitions may be at different indexes, because
splits differ in length. Then the lower index comes first.

Jobs get permits in turn, because their orders cannot be compared.
"""

from __future__ import annotations

import heapq
import itertools
import threading
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


class PermitRequest:
    """A thread's request for one permit.

    Args:
        need: the need of the stream that the thread serves.

    Attributes:
        orders: when the streams that wait for the thread need rows, the first of each reader.
        turn: locked until the thread gets its permit.
        waits: whether the request is in a queue.
    """

    def __init__(self, need: Need = _FIRST) -> None:
        self.orders: dict[Reader, Order] = {need.reader: need.order}
        self.turn = threading.Lock()
        self.waits = False


class PermitQueue:
    """The requests that wait. The caller holds a lock."""

    def __init__(self) -> None:
        # Each reader has a heap. The first reader has the next turn.
        self._readers: dict[Reader, list[tuple[Order, int, PermitRequest]]] = {}
        self._numbers = itertools.count()
        self._length = 0

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return self._length

    def add(self, request: PermitRequest) -> None:
        """Add a request."""
        request.waits = True
        self._length += 1
        for reader, order in request.orders.items():
            self._push(reader, order, request)

    def add_need(self, request: PermitRequest, need: Need) -> None:
        """Record that a further stream waits for the thread of a request."""
        known = request.orders.get(need.reader)
        if known is None or need.order < known:
            request.orders[need.reader] = need.order
            if request.waits:
                self._push(need.reader, need.order, request)

    def _push(self, reader: Reader, order: Order, request: PermitRequest) -> None:
        heap = self._readers.setdefault(reader, [])
        heapq.heappush(heap, (order, next(self._numbers), request))

    def pop(self) -> PermitRequest | None:
        """Remove and return the request that gets the next permit. None if there is none.

        Readers have their turns one after the other. Within a reader, the first split comes first.
        Requests for splits of equal order are served in the order in which they were added.
        """
        for reader in list(self._readers):
            heap = self._readers.pop(reader)
            request = _pop_waiting(heap)
            if heap:
                self._readers[reader] = heap  # behind the others
            if request is not None:
                request.waits = False
                self._length -= 1
                return request
        return None


def _pop_waiting(heap: list[tuple[Order, int, PermitRequest]]) -> PermitRequest | None:
    """Remove and return the first request that still waits, or None.

    A request with several needs has several entries. The first that is popped removes it.
    """
    while heap:
        request = heapq.heappop(heap)[2]
        if request.waits:
            return request
    return None
