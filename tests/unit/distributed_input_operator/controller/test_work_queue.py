"""The queue: once for many events, one worker per key, again after a change."""

from __future__ import annotations

import asyncio

from distributed_input_operator.controller.work_queue import WorkQueue


def test_many_events_are_one_work_item():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        for _ in range(5):
            queue.add("a")
        assert await queue.get() == "a"
        assert len(queue) == 0

    asyncio.run(body())


def test_a_key_added_during_its_work_comes_again_afterwards():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        assert len(queue) == 0  # No other worker gets it now.
        queue.done(key)
        assert await asyncio.wait_for(queue.get(), 5) == "a"

    asyncio.run(body())


def test_the_earliest_time_wins_and_an_event_comes_before_all():
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


def test_a_queued_key_is_not_delayed_again():
    async def body():
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add_after("a", 0.01)
        queue.done(await queue.get())
        queue.add_after("b", 0.1)  # A second entry of a would come before.
        assert await asyncio.wait_for(queue.get(), 5) == "b"

    asyncio.run(body())
