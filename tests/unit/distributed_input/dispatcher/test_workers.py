"""The registry of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto.types_pb2 import DatasetFailure, StalledSplit
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.workers import WorkerRegistry
from distributed_input.link.statuses import InvalidRequestError
from tests.unit.distributed_input.dispatcher.builders import worker

LIMITS = DispatcherLimits(expiry=5.0)


def ids(workers: WorkerRegistry, now: float) -> list[str]:
    return [info.worker_id for info in workers.live(now)]


def test_a_worker_expires_without_heartbeats():
    workers = WorkerRegistry(LIMITS)
    workers.beat(0.0, worker("a", rows=3, draining=True, capacity=5))
    workers.beat(3.0, worker("b", "h:2"))
    assert ids(workers, 5.0) == ["a", "b"]
    assert workers.live(5.0)[0].rows == 3
    info = workers.live(5.0)[0]
    assert info.capacity == 5
    assert workers.live(5.0)[0].draining
    assert ids(workers, 5.1) == ["b"]
    assert ids(workers, 8.1) == []


def test_only_workers_that_did_not_drain_are_losses():
    workers = WorkerRegistry(LIMITS)
    workers.beat(0.0, worker("a", draining=True))
    workers.beat(0.0, worker("b", "h:2"))
    workers.expire(9.0)
    assert workers.losses == 1


def test_of_two_workers_at_one_address_the_later_one_serves():
    workers = WorkerRegistry(LIMITS)
    workers.beat(0.0, worker("before", "h:1"))
    workers.beat(1.0, worker("after", "h:1"))
    assert ids(workers, 1.0) == ["after"]
    for now in (1.5, 4.0, 8.0):
        workers.beat(now, worker("after", "h:1"))
        with pytest.raises(TerminalError, match=r"before: another worker, after, .*--advertise"):
            workers.beat(now, worker("before", "h:1"))
    assert ids(workers, 8.0) == ["after"]
    assert workers.losses == 0


def test_the_earlier_worker_serves_again_when_the_later_one_expires():
    workers = WorkerRegistry(LIMITS)
    workers.beat(0.0, worker("before", "h:1"))
    workers.beat(1.0, worker("after", "h:1"))
    workers.beat(10.0, worker("before", "h:1"))
    assert ids(workers, 10.0) == ["before"]


def test_a_worker_may_change_its_address():
    workers = WorkerRegistry(LIMITS)
    workers.beat(0.0, worker("a", "h:1"))
    workers.beat(1.0, worker("a", "h:2"))
    workers.beat(1.0, worker("b", "h:1"))
    assert [(w.worker_id, w.address) for w in workers.live(1.0)] == [("a", "h:2"), ("b", "h:1")]


def test_workers_of_other_pods_are_not_usable():
    workers = WorkerRegistry(LIMITS)
    for worker_id, pod in (("a", "p"), ("b", "q"), ("c", "")):
        workers.beat(0.0, worker(worker_id, "127.0.0.1:7071", pod=pod))
    usable = {pod: [one.worker_id for one in workers.usable_from(0.0, pod)] for pod in ("p", "")}
    assert usable == {"p": ["a", "c"], "": ["c"]}
    assert ids(workers, 0.0) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("field", "beat"),
    [
        ("worker_id", worker("")),
        ("address", worker("a", "")),
        ("address", worker("a", "x" * 513)),
        ("pod", worker("a", pod="x" * 513)),
    ],
)
def test_an_error_names_the_invalid_field(field, beat):
    with pytest.raises(InvalidRequestError, match=field):
        WorkerRegistry(LIMITS).beat(0.0, beat)


def test_the_number_of_workers_is_bounded():
    workers = WorkerRegistry(DispatcherLimits(workers=2))
    for i in range(2):
        workers.beat(0.0, worker(f"w{i}", f"h:{i}"))
    with pytest.raises(TerminalError, match="more than 2 workers"):
        workers.beat(0.0, worker("w2", "h:2"))
    workers.beat(0.0, worker("w1", "h:1"))
    workers.beat(9.0, worker("w2", "h:2"))


BEATS = st.tuples(
    st.floats(0.0, 4.0),
    st.sampled_from("abcdef"),
    st.sampled_from(["h:1", "h:2"]),
    st.sampled_from(["", "p", "q"]),
)


@given(st.lists(BEATS, max_size=60))
def test_no_two_live_workers_of_a_pod_share_an_address(beats):
    workers, now = WorkerRegistry(LIMITS), 0.0
    for wait, worker_id, address, pod in beats:
        now += wait
        try:
            workers.beat(now, worker(worker_id, address, pod=pod))
            assert worker_id in ids(workers, now)
        except TerminalError:
            # A rejection needs another worker at the address with a recent heartbeat.
            assert (pod, address) in {(info.pod, info.address) for info in workers.live(now)}
            assert worker_id not in ids(workers, now)
        live = workers.live(now)
        assert len({(info.pod, info.address) for info in live}) == len(live)
        assert workers._at == {(info.pod, info.address): info.worker_id for info in live}
        assert len(workers._superseded) <= 6


def test_stalled_splits_are_kept_up_to_a_maximum():
    workers = WorkerRegistry(LIMITS)
    stalled = [StalledSplit(split=number) for number in range(40)]
    workers.beat(0.0, worker("a", stalled=stalled))
    assert [one.split for one in workers.live(0.0)[0].stalled] == list(range(16))


def test_the_last_error_of_a_dataset_is_kept_until_the_worker_reports_none():
    workers = WorkerRegistry(LIMITS)
    workers.beat(0.0, worker("a", failure=DatasetFailure(dataset="d", message="no file")))
    assert workers.live(0.0)[0].failure.message == "no file"
    workers.beat(1.0, worker("a"))
    assert not workers.live(1.0)[0].HasField("failure")
