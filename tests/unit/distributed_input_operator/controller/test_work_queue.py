"""The queue: once for many, one at a time, again where it changed meanwhile."""

from __future__ import annotations

import asyncio

from distributed_input_operator.controller.work_queue import WorkQueue


def test_many_events_are_one_piece_of_work():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        for _ in range(5):
            queue.add("a")
        assert await queue.get() == "a"
        assert len(queue) == 0

    asyncio.run(body())


def test_what_changes_during_the_work_is_worked_on_again_and_never_at_the_same_time():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        assert len(queue) == 0  # nobody else gets it now
        queue.done(key)
        assert await asyncio.wait_for(queue.get(), 5) == "a"

    asyncio.run(body())


def test_the_earliest_time_wins_and_an_event_is_earlier_than_any():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 60)
        queue.add_after("a", 0.01)
        queue.add_after("a", 30)
        assert await asyncio.wait_for(queue.get(), 5) == "a"
        queue.done("a")
        queue.add_after("b", 60)
        queue.add("b")
        assert await asyncio.wait_for(queue.get(), 5) == "b"
        queue.forget("b")

    asyncio.run(body())


def test_what_waits_for_work_is_not_worked_on_again_later():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add_after("a", 0.01)
        queue.done(await queue.get())
        queue.add_after("b", 0.1)  # what would come for a comes before
        assert await asyncio.wait_for(queue.get(), 5) == "b"

    asyncio.run(body())
