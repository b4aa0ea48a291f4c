"""The queue: once for many events, one worker per key, again after a change, groups in turn.

This module is long because all tests of one module are in one file.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from distributed_input_operator.controller.work_queue import SLICE, Lane, WorkQueue, in_slices
from distributed_input_operator.kube.fair_order import FairShares


def first_letter(key: str) -> str:
    return key[0]


async def test_many_events_are_one_work_item():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    for _ in range(5):
        queue.add("a")
    assert await queue.get() == "a"
    assert len(queue) == 0


async def test_a_key_added_during_its_work_comes_again_afterwards():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    assert len(queue) == 0  # No other worker gets it now.
    queue.done(key)
    assert await asyncio.wait_for(queue.get(), 5) == "a"


async def test_an_event_after_a_change_during_the_work_does_not_delay_it():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    queue.add("a")
    queue.add("b")
    key = await queue.get()
    queue.add("a", Lane.CHANGE)
    queue.add("a")
    queue.done(key)
    assert await asyncio.wait_for(queue.get(), 5) == "a"


async def test_the_earliest_time_wins_and_an_event_comes_before_all():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 30)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.done("a")
    queue.add_after("b", 60)
    queue.add("b")
    assert await asyncio.wait_for(queue.get(), 5) == "b"
    queue.forget("b")


async def test_a_queued_key_is_not_delayed_again():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    queue.add("a")
    queue.add_after("a", 0.01)
    queue.done(await queue.get())
    queue.add_after("b", 0.1)  # A second entry of a would come before.
    assert await asyncio.wait_for(queue.get(), 5) == "b"


async def test_keys_come_in_the_order_of_their_lanes_and_no_lane_waits_forever():
    queue: WorkQueue[str] = WorkQueue(first_letter, 400)
    for lane in reversed(Lane):
        for number in range(12 if lane is Lane.CHANGE else 2):
            queue.add(f"{number} {lane.name}", lane)
    got = [Lane[(await asyncio.wait_for(queue.get(), 5)).split()[1]] for _ in range(18)]
    later = [Lane.EARLIER_CHANGE, Lane.EVENT, Lane.START]
    assert got == [*[Lane.CHANGE] * 8, *later, *[Lane.CHANGE] * 4, *later]


@pytest.mark.parametrize("lane", [Lane.EARLIER_CHANGE, Lane.START])
async def test_the_lanes_of_a_start_leave_most_workers_to_changes(lane):
    queue: WorkQueue[str] = WorkQueue(first_letter, 16)
    for number in range(20):
        queue.add(f"a{number}", lane)
        queue.add(f"b{number}", lane)
    taken = [await asyncio.wait_for(queue.get(), 5) for _ in range(3)]
    assert sorted(key[0] for key in taken) in (["a", "a", "b"], ["a", "b", "b"])
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add("a-change", Lane.CHANGE)
    assert await asyncio.wait_for(waiting, 5) == "a-change"
    queue.done(taken[0])
    assert await asyncio.wait_for(queue.get(), 5) not in ("a-change", *taken)


async def test_a_full_lane_is_not_searched(monkeypatch):
    """With 10,000 namespaces, each event would cost milliseconds until the start has ended."""
    searched: list[str] = []
    may_take = FairShares.may_take

    def counted(self: FairShares, group: str) -> bool:
        searched.append(group)
        return may_take(self, group)

    monkeypatch.setattr(FairShares, "may_take", counted)
    queue: WorkQueue[str] = WorkQueue(str, 8)
    for number in range(1000):
        queue.add(str(number), Lane.START)
    assert [await queue.get() for _ in range(2)] == ["0", "1"]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    searched.clear()
    for number in range(1000, 2000):
        queue.add(str(number), Lane.START)
    queue.add("change", Lane.CHANGE)
    assert await asyncio.wait_for(waiting, 5) == "change"
    assert len(searched) < 10


async def test_a_queued_key_that_changes_comes_first_and_once():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.add("c", Lane.CHANGE)
    queue.add("c")
    assert len(queue) == 3
    assert [await asyncio.wait_for(queue.get(), 5) for _ in range(3)] == ["c", "a", "b"]
    queue.add("a")  # Its work has not ended.
    queue.add("a", Lane.CHANGE)
    queue.add("d")
    queue.done("a")
    assert [await asyncio.wait_for(queue.get(), 5) for _ in range(2)] == ["a", "d"]
    assert len(queue) == 0


async def test_a_key_with_a_lane_for_later_keeps_it_whatever_adds_it():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    queue.add("event")
    key = await queue.get()
    for later in ("event", "timer"):
        queue.add_after(later, 0.01)  # This time stays.
        queue.add_after(later, 60, Lane.CHANGE)
    queue.add("event")
    queue.add("other")
    queue.done(key)
    async with asyncio.timeout(5):
        while len(queue) < 3:
            await asyncio.sleep(0.001)
    assert [await queue.get() for _ in range(3)] == ["event", "timer", "other"]
    queue.done("event")
    queue.add("another")
    queue.add("event")  # Its lane was that of one addition.
    assert [await queue.get() for _ in range(2)] == ["another", "event"]


async def test_groups_take_turns_in_each_lane():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    for key in ("a1", "a2", "b1"):
        queue.add(key)
        queue.add(f"{key}-change", Lane.CHANGE)
    got = [await queue.get() for _ in range(6)]
    assert got == ["a1-change", "b1-change", "a2-change", "a1", "b1", "a2"]


async def test_changes_of_a_group_with_its_share_do_not_delay_others():
    queue: WorkQueue[str] = WorkQueue(first_letter, 4)
    for number in range(9):
        queue.add(f"a{number}", Lane.CHANGE)
    assert [await queue.get() for _ in range(2)] == ["a0", "a1"]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add("b")
    assert await asyncio.wait_for(waiting, 5) == "b"
    queue.done("a0")
    assert await asyncio.wait_for(queue.get(), 5) == "a2"


async def test_a_group_has_half_of_the_workers_in_all_lanes_together():
    queue: WorkQueue[str] = WorkQueue(first_letter, 4)
    for number in range(2):
        queue.add(f"a{number}", Lane.CHANGE)
        queue.add(f"a{number}-event")
    assert [await queue.get() for _ in range(2)] == ["a0", "a1"]
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a0")
    assert await asyncio.wait_for(waiting, 5) == "a0-event"


async def test_the_end_of_work_wakes_a_worker_for_the_next_key_of_its_group():
    queue: WorkQueue[str] = WorkQueue(first_letter, 2)
    queue.add("a1")
    queue.add("a2")
    assert await queue.get() == "a1"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.done("a1")
    assert await asyncio.wait_for(waiting, 5) == "a2"


async def test_a_worker_that_is_cancelled_when_it_is_woken_wakes_another():
    queue: WorkQueue[str] = WorkQueue(first_letter, 100)
    woken, other = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")
    woken.cancel()
    assert await asyncio.wait_for(other, 5) == "a"


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert task.cancelled()


@pytest.mark.parametrize("seed", range(50))
async def test_every_key_is_worked_on_whichever_workers_are_cancelled(seed):
    """Workers are cancelled at random and replaced. What they began is added again."""
    drawn = random.Random(seed)
    count = drawn.randint(1, 6)
    left = {f"{drawn.choice('abc')}{number}" for number in range(40)}
    working: set[str] = set()

    async def work(queue: WorkQueue[str]) -> None:
        while True:
            key = await queue.get()
            assert key not in working
            assert len(working) < count
            working.add(key)
            try:
                await turns_of_the_loop(drawn.randrange(3))
                left.discard(key)
            finally:
                working.discard(key)
                queue.done(key)
                if key in left:
                    queue.add(key, drawn.choice(list(Lane)))

    queue: WorkQueue[str] = WorkQueue(first_letter, count)
    workers = [asyncio.create_task(work(queue)) for _ in range(count)]
    for key in sorted(left):
        queue.add(key, drawn.choice(list(Lane)))
    for _ in range(100):
        await asyncio.sleep(0)
        place = drawn.randrange(count)
        await cancel(workers[place])
        workers[place] = asyncio.create_task(work(queue))
    async with asyncio.timeout(20):
        while left:
            await asyncio.sleep(0)
    for one in workers:
        await cancel(one)


async def test_the_work_fails_if_something_cancels_a_call():
    async def work(_: str) -> None:
        raise asyncio.CancelledError

    queue: WorkQueue[str] = WorkQueue(first_letter, 4)
    queue.add("a")
    running = asyncio.create_task(queue.run(work))
    await asyncio.wait([running], timeout=20)
    assert "something cancelled the work on a" in repr(running.exception())


async def test_cancelled_work_ends_as_cancelled():
    began = asyncio.Event()

    async def work(_: str) -> None:
        began.set()
        await asyncio.Event().wait()

    queue: WorkQueue[str] = WorkQueue(first_letter, 4)
    queue.add("a")
    running = asyncio.create_task(queue.run(work))
    await asyncio.wait_for(began.wait(), 20)
    running.cancel()
    await asyncio.wait([running], timeout=20)
    assert running.cancelled()


async def test_other_tasks_go_on_after_each_slice():
    seen: list[int] = []
    reached: list[int] = []

    async def other() -> None:
        while True:
            reached.append(len(seen))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    async for number in in_slices(range(3 * SLICE)):
        seen.append(number)
    task.cancel()
    assert seen == list(range(3 * SLICE))
    assert reached == [0, SLICE, 2 * SLICE]
