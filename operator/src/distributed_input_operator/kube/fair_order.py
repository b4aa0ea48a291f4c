"""Turns between groups, such as namespaces: no group delays another one."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class FairShares:
    """How many places each group has.

    A group gets another place only while it has fewer than are free: one group has at most half of
    the places, two have a third each, and one place is always free for a new group.

    Attributes:
        free: number of places that no group has.
    """

    def __init__(self, places: int) -> None:
        self.free = places
        self._taken: Counter[str] = Counter()

    def may_take(self, group: str) -> bool:
        """Return whether the group may take another place now."""
        return self._taken[group] < self.free

    def take(self, group: str) -> None:
        """Take a place."""
        self._taken[group] += 1
        self.free -= 1

    def give_back(self, group: str) -> None:
        """Give a place back."""
        self._taken[group] -= 1
        if not self._taken[group]:
            del self._taken[group]
        self.free += 1


class FairOrder(Generic[T]):
    """Keys that wait. The groups with waiting keys take turns.

    Args:
        group_of: returns the group of a key.
    """

    def __init__(self, group_of: Callable[[T], str]) -> None:
        self._group_of = group_of
        self._waiting: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()

    def add(self, key: T) -> None:
        """Add a key behind those of its group. A key that waits stays where it is."""
        self._waiting.setdefault(self._group_of(key), OrderedDict()).setdefault(key)

    def discard(self, key: T) -> None:
        """Remove a key, if it waits."""
        group = self._group_of(key)
        keys = self._waiting.get(group)
        if keys is not None and key in keys:
            del keys[key]
            if not keys:
                del self._waiting[group]

    def next_group(self, may_take: Callable[[str], bool]) -> str | None:
        """Return the next group with a waiting key that `may_take` allows. None: there is none."""
        return next(filter(may_take, self._waiting), None)

    def pop(self, group: str) -> T:
        """Remove and return the first key of a group, whose next turn comes after the others'."""
        keys = self._waiting[group]
        key, _ = keys.popitem(last=False)
        if keys:
            self._waiting.move_to_end(group)
        else:
            del self._waiting[group]
        return key


class _Ticket:
    """A task that waits for its turn."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FairLimit:
    """Limits how many blocks run at the same time. Groups take turns: see `FairShares`.

    Args:
        limit: maximum number of blocks. One group has at most half of them.
    """

    def __init__(self, limit: int) -> None:
        self._shares = FairShares(limit)
        self._order: FairOrder[_Ticket] = FairOrder(lambda ticket: ticket.group)

    @asynccontextmanager
    async def turn(self, group: str) -> AsyncIterator[None]:
        """Run a block when it is the group's turn."""
        ticket = _Ticket(group)
        self._order.add(ticket)
        self._begin()
        try:
            await ticket.turn
        except asyncio.CancelledError:
            if not ticket.turn.cancelled():  # Its turn had come: another one takes it.
                self._end(group)
            raise
        try:
            yield
        finally:
            self._end(group)

    def _begin(self) -> None:
        while self._shares.free:  # Otherwise the search would go through all groups.
            group = self._order.next_group(self._shares.may_take)
            if group is None:
                return
            ticket = self._order.pop(group)
            if not ticket.turn.done():  # Otherwise its task was cancelled.
                self._shares.take(group)
                ticket.turn.set_result(None)

    def _end(self, group: str) -> None:
        self._shares.give_back(group)
        self._begin()
