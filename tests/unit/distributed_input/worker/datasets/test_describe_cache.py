"""Jobs of one dataset are described once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets import describe_cache
from distributed_input.worker.datasets.describe_cache import DescribeCache


class CountingDescribe:
    """Completes drafts and records them."""

    def __init__(self) -> None:
        self.drafts: list[types_pb2.Job] = []
        self.broken = False

    def __call__(self, draft: types_pb2.Job, _consumer: str) -> types_pb2.Job:
        self.drafts.append(draft)
        if self.broken:
            raise DatasetFnError("broken")
        job = types_pb2.Job()
        job.CopyFrom(draft)
        job.num_splits = 10 + draft.partitions
        return job


def draft(name: str, partitions: int = 1) -> types_pb2.Job:
    return types_pb2.Job(name=name, partitions=partitions)


def test_jobs_that_differ_in_name_only_are_described_once() -> None:
    describe = CountingDescribe()
    cache = DescribeCache(describe)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(cache.job, [draft(f"job-{i}") for i in range(8)]))
    assert len(describe.drafts) == 1
    assert [(job.name, job.num_splits) for job in found] == [(f"job-{i}", 11) for i in range(8)]


def test_another_draft_is_described_and_the_oldest_is_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe_cache, "_MAX_JOBS", 2)
    describe = CountingDescribe()
    cache = DescribeCache(describe)
    partitions = [1, 2, 1, 3, 1]  # 3 evicts 1
    assert [cache.job(draft("a", p)).num_splits for p in partitions] == [10 + p for p in partitions]
    assert [one.partitions for one in describe.drafts] == [1, 2, 3, 1]


def test_a_change_of_the_returned_job_does_not_change_the_cache() -> None:
    cache = DescribeCache(CountingDescribe())
    cache.job(draft("a")).num_splits = 1
    assert cache.job(draft("a")).num_splits == 11


def test_an_error_is_not_cached() -> None:
    describe = CountingDescribe()
    cache = DescribeCache(describe)
    describe.broken = True
    with pytest.raises(DatasetFnError):
        cache.job(draft("a"))
    describe.broken = False
    assert cache.job(draft("a")).num_splits == 11


def test_a_job_that_starts_later_is_described_again() -> None:
    """The files of its dataset may have changed."""
    describe, now = CountingDescribe(), [0.0]
    cache = DescribeCache(describe, lambda: now[0])
    cache.job(draft("a"))
    now[0] = 5.0
    cache.job(draft("b"))
    assert len(describe.drafts) == 1
    now[0] = 5.1
    cache.job(draft("c"))
    assert len(describe.drafts) == 2


def test_a_description_that_hangs_fails_the_others_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_cache, "_MAX_WAIT_SECONDS", 0.2)
    begun, returns = threading.Event(), threading.Event()

    def describe(draft: types_pb2.Job, _consumer: str) -> types_pb2.Job:
        begun.set()
        returns.wait(30)
        return draft

    cache = DescribeCache(describe)
    with ThreadPoolExecutor(1) as pool:
        hangs = pool.submit(cache.job, draft("a"))
        try:
            assert begun.wait(10)
            with pytest.raises(UnavailableError, match="has been describing a dataset for"):
                cache.job(draft("b", 2))
        finally:
            returns.set()
        assert hangs.result(10).name == "a"
