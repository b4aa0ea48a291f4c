"""Within a job the split that is read first comes first, and jobs have turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.streams.permit_queue import Need, Order, PermitQueue, PermitRequest

ORDERS = st.tuples(st.integers(0, 2), st.integers(0, 3))
NEEDS = st.builds(Need, st.sampled_from([("a", 0), ("a", 1), ("b", 0)]), ORDERS)


def queue_of(needs: list[list[Need]]) -> tuple[PermitQueue, list[PermitRequest]]:
    """Return a queue with one request for each list of needs."""
    queue, requests = PermitQueue(), []
    for first, *others in needs:
        request = PermitRequest(first)
        queue.add(request)
        requests.append(request)
        for need in others:
            queue.add_need(request, need)
    return queue, requests


def drain(queue: PermitQueue) -> list[PermitRequest]:
    return list(iter(queue.pop, None))


@given(st.lists(st.lists(NEEDS, min_size=1, max_size=3), max_size=12))
def test_each_request_is_served_once(needs: list[list[Need]]) -> None:
    queue, requests = queue_of(needs)
    assert len(queue) == len(requests)
    served = drain(queue)
    assert len(served) == len(requests)
    assert set(served) == set(requests)
    assert len(queue) == 0
    assert not any(request.waits for request in requests)


@given(st.lists(ORDERS, max_size=12))
def test_a_job_gets_permits_in_the_order_in_which_it_reads(orders: list[Order]) -> None:
    """Requests of equal order are served in the order in which they were added."""
    queue, requests = queue_of([[Need(order=order)] for order in orders])
    expected = sorted(range(len(orders)), key=lambda i: orders[i])
    assert [requests.index(one) for one in drain(queue)] == expected


@given(st.lists(st.lists(NEEDS, min_size=1, max_size=3), max_size=12), st.integers(0, 12))
def test_in_one_round_each_job_gets_what_it_reads_first(
    needs: list[list[Need]], served: int
) -> None:
    """So no number of requests of one job keeps another one waiting."""
    queue, requests = queue_of(needs)
    for _ in range(served):
        queue.pop()
    waiting = [one for one in requests if one.waits]
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
    queue.add(PermitRequest(a))
    queue.add(PermitRequest(c))
    assert [next(iter(one.orders))[0] for one in drain(queue)] == ["b", "a", "c", "b"]


def test_a_need_is_kept_that_was_added_before_the_request_waits() -> None:
    queue = PermitQueue()
    late, request = PermitRequest(Need(("a", 0), (0, 1))), PermitRequest(Need(("a", 0), (0, 2)))
    queue.add_need(request, Need(("a", 0), (0, 0)))
    queue.add(late)
    queue.add(request)
    assert drain(queue) == [request, late]


def test_a_later_need_changes_nothing() -> None:
    queue, requests = queue_of([[Need(order=(0, 1)), Need(order=(0, 5))], [Need(order=(0, 3))]])
    assert drain(queue) == requests
