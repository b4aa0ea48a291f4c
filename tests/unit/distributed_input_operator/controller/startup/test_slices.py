"""Other tasks go on during work on all inputs."""

from __future__ import annotations

import asyncio

from distributed_input_operator.controller.work_queue import SLICE, in_slices


def test_other_tasks_go_on_after_each_slice():
    seen: list[int] = []
    reached: list[int] = []

    async def other() -> None:
        while True:
            reached.append(len(seen))
            await asyncio.sleep(0)

    async def body() -> None:
        task = asyncio.create_task(other())
        async for number in in_slices(range(3 * SLICE)):
            seen.append(number)
        task.cancel()

    asyncio.run(body())
    assert seen == list(range(3 * SLICE))
    assert reached == [0, SLICE, 2 * SLICE]
