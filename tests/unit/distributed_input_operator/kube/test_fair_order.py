"""Groups take turns, one place is always free for another group, and no turn is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.kube.fair_order import FairLimit, FairOrder, FairShares


def first_letter(key: str) -> str:
    return key[0]


class Queue:
    """An order with shares, as the work queue uses them."""

    def __init__(self, places: int) -> None:
        self.order: FairOrder[str] = FairOrder(first_letter)
        self.shares = FairShares(places)

    def take(self) -> str | None:
        group = self.order.next_group(self.shares.may_take)
        if group is None:
            return None
        self.shares.take(group)
        return self.order.pop(group)

    def done(self, key: str) -> None:
        self.shares.give_back(key[0])


def test_groups_take_turns():
    queue = Queue(20)
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.order.add(key)
    assert [queue.take() for _ in range(7)] == ["a1", "b1", "c1", "a2", "b2", "a3", None]


def test_a_discarded_key_is_not_next():
    queue = Queue(20)
    for key in ("a1", "a2", "b1", "a1"):
        queue.order.add(key)
    for key in ("a1", "b1", "b1", "c1"):
        queue.order.discard(key)
    assert [queue.take() for _ in range(2)] == ["a2", None]


@pytest.mark.parametrize(("groups", "each"), [("a", 5), ("ab", 3)])
def test_one_group_has_half_of_the_places_and_two_have_a_third(groups, each):
    queue = Queue(9)
    for number in range(20):
        for group in groups:
            queue.order.add(f"{group}{number}")
    taken = [queue.take() for _ in range(9)]
    assert sorted(one[0] for one in taken if one) == sorted(groups * each)


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(1, 8))
def test_every_key_is_taken_once_and_no_place_is_free_without_need(groups, places):
    queue = Queue(places)
    keys = [f"{group}{number}" for number, group in enumerate(groups)]
    for key in keys:
        queue.order.add(key)
    taken: list[str] = []
    working: list[str] = []
    while len(taken) < len(keys):
        taken_now = queue.take()
        if taken_now is None:
            queue.done(working.pop(0))  # an IndexError is a key that stays forever
            continue
        taken.append(taken_now)
        working.append(taken_now)
        assert len(working) <= places
    assert sorted(taken) == sorted(keys)
    for group in "abc":
        assert [one for one in taken if one[0] == group] == [one for one in keys if one[0] == group]


# The limit of requests.


async def run_all(limit: FairLimit, groups: str, order: list[str]) -> list[asyncio.Task[None]]:
    async def one(group: str) -> None:
        async with limit.turn(group):
            order.append(group)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(group)) for group in groups]
    await asyncio.sleep(0)
    return tasks


async def test_requests_of_groups_take_turns():
    order: list[str] = []
    await asyncio.wait_for(asyncio.gather(*await run_all(FairLimit(1), "aaaabb", order)), 5)
    assert "".join(order) == "aababa" or "".join(order) == "ababaa"


@pytest.mark.parametrize("seed", range(50))
async def test_no_turn_is_lost_whichever_requests_are_cancelled(seed):
    """Each request may be cancelled at each of its awaits. All others run, within the limit."""
    drawn = random.Random(seed)
    most = drawn.randint(1, 6)
    limit = FairLimit(most)
    running: Counter[str] = Counter()
    completed: list[int] = []

    async def request(number: int, group: str) -> None:
        for _ in range(drawn.randrange(4)):
            await asyncio.sleep(0)
        async with limit.turn(group):
            running[group] += 1
            assert running.total() <= most
            try:
                for _ in range(drawn.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                running[group] -= 1
        completed.append(number)

    tasks = [asyncio.create_task(request(one, drawn.choice("abc"))) for one in range(60)]
    for _ in range(40):
        await asyncio.sleep(0)
        for one in drawn.sample(tasks, drawn.randrange(4)):
            one.cancel()
    await asyncio.wait(tasks, timeout=20)
    kept = [number for number, one in enumerate(tasks) if not one.cancelled()]
    assert sorted(completed) == kept
    # All places are free again.
    async with asyncio.timeout(20):
        await asyncio.gather(*[request(-1, group) for group in "abc" for _ in range(most)])
