"""Within a job the split that is read first comes first, and jobs have turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.compute.task_queue import ComputeTask, Need, Order, TaskQueue

ORDERS = st.tuples(st.integers(0, 2), st.integers(0, 3))
NEEDS = st.builds(Need, st.sampled_from([("a", 0), ("a", 1), ("b", 0)]), ORDERS)


def task_of(*needs: Need) -> ComputeTask:
    return ComputeTask(list, *needs)


def queue_of(needs: list[list[Need]]) -> tuple[TaskQueue, list[ComputeTask]]:
    """Return a queue with one task for each list of needs."""
    queue, tasks = TaskQueue(), []
    for first, *others in needs:
        task = task_of(first)
        queue.add(task)
        tasks.append(task)
        for need in others:
            queue.add_need(task, need)
    return queue, tasks


def drain(queue: TaskQueue) -> list[ComputeTask]:
    return list(iter(queue.pop, None))


@given(st.lists(st.lists(NEEDS, min_size=1, max_size=3), max_size=12))
def test_each_task_is_served_once(needs: list[list[Need]]) -> None:
    queue, tasks = queue_of(needs)
    assert len(queue) == len(tasks)
    served = drain(queue)
    assert len(served) == len(tasks)
    assert set(served) == set(tasks)
    assert len(queue) == 0
    assert not any(task.waits for task in tasks)


@given(st.lists(ORDERS, max_size=12))
def test_a_job_is_computed_in_the_order_in_which_it_reads(orders: list[Order]) -> None:
    """Requests of equal order are served in the order in which they were added."""
    queue, tasks = queue_of([[Need(order=order)] for order in orders])
    expected = sorted(range(len(orders)), key=lambda i: orders[i])
    assert [tasks.index(one) for one in drain(queue)] == expected


@given(st.lists(st.lists(NEEDS, min_size=1, max_size=3), max_size=12), st.integers(0, 12))
def test_in_one_round_each_job_gets_what_it_reads_first(
    needs: list[list[Need]], served: int
) -> None:
    """So no number of tasks of one job keeps another one waiting."""
    queue, tasks = queue_of(needs)
    for _ in range(served):
        queue.pop()
    waiting = [one for one in tasks if one.waits]
    readers = {reader for one in waiting for reader in one.orders}
    first = {r: min(one.orders[r] for one in waiting if r in one.orders) for r in readers}
    round_ = [queue.pop() for _ in readers]
    for reader, order in first.items():
        assert any(one is not None and one.orders.get(reader) == order for one in round_)


def test_jobs_have_turns() -> None:
    needs = [[Need((job, 0), (0, at))] for at, job in enumerate("aaaabb")]
    queue, _ = queue_of(needs)
    assert ["".join(r[0] for r in one.orders) for one in drain(queue)] == list("ababaa")


def test_a_job_that_returns_waits_for_the_turns_of_the_others() -> None:
    a, b, c = (Need((job, 0)) for job in "abc")
    queue, (first, *_) = queue_of([[a], [b], [b]])
    assert queue.pop() is first
    queue.add(task_of(a))
    queue.add(task_of(c))
    assert [next(iter(one.orders))[0] for one in drain(queue)] == ["b", "a", "c", "b"]


def test_a_need_is_kept_that_was_added_before_the_request_waits() -> None:
    queue = TaskQueue()
    late, task = task_of(Need(("a", 0), (0, 1))), task_of(Need(("a", 0), (0, 2)))
    queue.add_need(task, Need(("a", 0), (0, 0)))
    queue.add(late)
    queue.add(task)
    assert drain(queue) == [task, late]


def test_a_later_need_changes_nothing() -> None:
    queue, tasks = queue_of([[Need(order=(0, 1)), Need(order=(0, 5))], [Need(order=(0, 3))]])
    assert drain(queue) == tasks


@given(
    st.lists(st.lists(NEEDS, min_size=1, max_size=3), max_size=12),
    st.lists(st.integers(0, 11), max_size=6),
)
def test_a_removed_task_is_not_served(needs: list[list[Need]], removed: list[int]) -> None:
    queue, tasks = queue_of(needs)
    gone = {tasks[at] for at in removed if at < len(tasks)}
    for at in removed:
        if at < len(tasks):
            queue.remove(tasks[at])
    assert len(queue) == len(tasks) - len(gone)
    assert set(drain(queue)) == set(tasks) - gone


def test_a_task_has_the_first_order_of_each_reader() -> None:
    a, b = ("a", 0), ("b", 0)
    task = task_of(Need(a, (0, 4)), Need(b, (1, 0)), Need(a, (0, 2)))
    assert task.orders == {a: (0, 2), b: (1, 0)}
    assert task_of().orders == {("", 0): (0, 0)}
