"""Streams of the same rows have the same key, and usage ends when its jobs have ended."""

from __future__ import annotations

import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.worker.streams import dataset_usage
from distributed_input.worker.streams.dataset_usage import DatasetUsage, sharing_key


def request_of(**fields: object) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(dataset_id="d")
    for name, value in fields.items():
        setattr(job, name, value)
    return worker_pb2.StreamRequest(job=job)


@pytest.mark.parametrize(
    "job",
    [
        *({"name": "b"}, {"epochs": 3}, {"remainder": 1}),
        *({"split_bytes": 3}, {"split_bytes_at_most": True}, {"shard_policy": "FILE"}),
    ],
)
def test_fields_without_influence_on_rows_do_not_change_the_keys(job: dict) -> None:
    assert sharing_key(request_of(**job)) == sharing_key(request_of())


@pytest.mark.parametrize(
    "job",
    [
        *({"dataset_id": "e"}, {"global_batch_size": 4}, {"num_splits": 3}),
        {"strict": True},  # it does not share the blocks of a stream that may skip rows
    ],
)
def test_another_dataset_or_batch_has_other_keys(job: dict) -> None:
    assert sharing_key(request_of(**job))[0] != sharing_key(request_of())[0]


@pytest.mark.parametrize("field", ["seed", "epoch", "split"])
def test_another_order_or_split_of_a_dataset_has_another_key(field: str) -> None:
    other = request_of()
    setattr(other, field, 1)
    assert sharing_key(other) != sharing_key(request_of())
    assert (sharing_key(other)[0] == sharing_key(request_of())[0]) == (field != "seed")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(dataset_usage, "time", fake)
    return fake


def test_a_dataset_is_shared_by_two_jobs_and_in_its_first_minute(clock: Clock) -> None:
    usage = DatasetUsage(began=clock.now)
    usage.enter("a")
    assert usage.is_shared
    clock.now += 61
    assert not usage.is_shared
    usage.enter("b")
    assert usage.is_shared


def test_usage_is_over_some_time_after_the_last_stream(clock: Clock) -> None:
    usage = DatasetUsage(began=clock.now)
    usage.enter("a")
    usage.enter("a")
    usage.leave("a")
    clock.now += 61
    assert not usage.is_over()
    usage.leave("a")
    clock.now += 9
    assert not usage.is_over()
    clock.now += 2
    assert usage.is_over()
