"""A queue of keys: each is worked on by one worker at a time, and once for many events.

It behaves like client-go's: a key that is added during its work comes again afterwards. Keys have
lanes: a user's change comes before the check of all inputs after a start.

The keys of different groups take turns, in each lane. So a tenant who changes hundreds of inputs in
a loop does not delay the inputs of others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import Generic, TypeVar

from distributed_input_operator.kube.fair_order import FairOrder, FairShares

T = TypeVar("T")

_PASSES = 8
"""Number of keys of earlier lanes after which a lane has its turn. So no lane waits forever."""
_START_SHARE = 4
"""A lane of the start has one worker in this many. With more of them, the start would not end
earlier, because the process uses one core. They would only delay the other lanes."""
SLICE = 100
"""Inputs after which other tasks go on. The work on each takes about 0.3 ms."""


class Lane(IntEnum):
    """Why a key is added. Keys of the first lane come first."""

    CHANGE = 0
    """The user changed the spec while this process leads."""
    EARLIER_CHANGE = 1
    """The user changed the spec while no process led."""
    EVENT = 2
    """Something else happened, or a delay has passed."""
    START = 3
    """A new leader checks every input once."""


_OF_START = (Lane.EARLIER_CHANGE, Lane.START)
"""There may be as many of these keys as there are inputs."""


class _Line(Generic[T]):
    """The keys of one lane that wait, and the places for those that are worked on."""

    def __init__(self, group_of: Callable[[T], str], places: int) -> None:
        self.waiting: FairOrder[T] = FairOrder(group_of)
        self.shares = FairShares(places)
        self.passed = 0
        """Keys of earlier lanes since the last one of this lane."""


class WorkQueue(Generic[T]):
    """The keys that are due. It belongs to one event loop.

    Args:
        group_of: returns the group of a key.
        workers: number of keys that are worked on at a time. One group has at most half of them.
    """

    def __init__(self, group_of: Callable[[T], str], workers: int) -> None:
        self._group_of, self._workers = group_of, workers
        self._shares = FairShares(workers)
        self._turn = asyncio.Lock()
        share = max(1, workers // _START_SHARE)
        self._lines: dict[Lane, _Line[T]] = {
            lane: _Line(group_of, share if lane in _OF_START else workers) for lane in Lane
        }
        self._idle: deque[asyncio.Future[None]] = deque()
        """Workers that wait for a key."""
        self._queued: dict[T, Lane] = {}
        self._working: dict[T, Lane] = {}
        self._again: dict[T, Lane] = {}
        self._timers: dict[T, asyncio.TimerHandle] = {}
        self._later: dict[T, Lane] = {}
        """The lanes of keys whose time has not come."""

    def add(self, key: T, lane: Lane = Lane.EVENT) -> None:
        """Add a key, to be worked on as soon as possible. It stays in an earlier lane."""
        lane = min(lane, self._later.get(key, lane))
        self._cancel(key)
        if key in self._working:
            self._again[key] = min(lane, self._again.get(key, lane))
        elif key not in self._queued:
            self._enter(key, lane)
        elif lane < self._queued[key]:
            self._lines[self._queued[key]].waiting.discard(key)
            self._enter(key, lane)

    def _enter(self, key: T, lane: Lane) -> None:
        self._queued[key] = lane
        self._lines[lane].waiting.add(key)
        self._wake()

    def add_after(self, key: T, seconds: float, lane: Lane = Lane.EVENT) -> None:
        """Add a key after a delay, or earlier if it is added before. It stays in an earlier lane.

        An earlier time that is already set stays.
        """
        if key in self._queued:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            if timer:
                timer.cancel()
            self._timers[key] = loop.call_later(seconds, self.add, key, lane)
        if lane < Lane.EVENT:
            self._later[key] = min(lane, self._later.get(key, lane))

    async def run(self, work: Callable[[T], Awaitable[None]]) -> None:
        """Call `work` with each key that is due, until cancelled.

        Raises an ExceptionGroup if a call fails: without workers, nothing would be worked on.
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work_forever(work))

    async def _work_forever(self, work: Callable[[T], Awaitable[None]]) -> None:
        while True:
            key = await self.get()
            try:
                await work(key)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # A task group ignores a cancelled task.
                raise RuntimeError(f"something cancelled the work on {key}") from error
            finally:
                self.done(key)
            # Most keys need no request, so nothing else would run until all are worked on. Only one
            # worker at a time returns to the queue in each round of the event loop.
            async with self._turn:
                await asyncio.sleep(0)

    async def get(self) -> T:
        """Return the next key. The caller must call `done` for it."""
        while (key := self._take()) is None:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            try:
                await idle
            except asyncio.CancelledError:
                if not idle.cancelled():  # It was woken: another worker takes the key.
                    self._wake()
                raise
        return key

    def _take(self) -> T | None:
        """Begin the work on the next key. None: there is none, or its group has its share."""
        lane, group = self._next()
        if group is None:
            return None
        line = self._lines[lane]
        for other in self._lines:
            if other > lane:
                self._lines[other].passed += 1
        line.passed = 0
        key = line.waiting.pop(group)
        del self._queued[key]
        self._working[key] = lane
        line.shares.take(group)
        self._shares.take(group)
        return key

    def _next(self) -> tuple[Lane, str | None]:
        """Return the lane and the group of the next key."""
        passed = [lane for lane, line in self._lines.items() if line.passed >= _PASSES]
        for lane in (*passed, *self._lines):
            line = self._lines[lane]
            if not line.shares.free:  # Otherwise the search would go through all groups.
                continue
            if (group := line.waiting.next_group(partial(self._may_take, line))) is not None:
                return lane, group
        return Lane.EVENT, None

    def _may_take(self, line: _Line[T], group: str) -> bool:
        return line.shares.may_take(group) and self._shares.may_take(group)

    def _wake(self) -> None:
        """Wake one worker, if there is a key for it."""
        while self._idle and self._next()[1] is not None:
            idle = self._idle.popleft()
            if not idle.done():  # Otherwise its worker was cancelled.
                idle.set_result(None)
                return

    def done(self, key: T) -> None:
        """End the work on a key."""
        group = self._group_of(key)
        self._lines[self._working.pop(key)].shares.give_back(group)
        self._shares.give_back(group)
        if key in self._again:
            self.add(key, self._again.pop(key))
        self._wake()

    def forget(self, key: T) -> None:
        """Cancel the delayed addition of a key."""
        self._cancel(key)

    def __len__(self) -> int:
        return len(self._queued)

    def _cancel(self, key: T) -> None:
        self._later.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer:
            timer.cancel()


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield all items. Let other tasks go on now and then."""
    for number, item in enumerate(items):
        if number % SLICE == 0:
            await asyncio.sleep(0)
        yield item
