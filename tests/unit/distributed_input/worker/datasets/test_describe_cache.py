"""Jobs of one dataset are described at the price of one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets import describe_cache as module
from distributed_input.worker.datasets.describe_cache import Described


class Describe:
    """Completes drafts, and counts."""

    def __init__(self) -> None:
        self.drafts: list[types_pb2.Job] = []
        self.broken = False

    def __call__(self, draft: types_pb2.Job) -> types_pb2.Job:
        self.drafts.append(draft)
        if self.broken:
            raise DatasetFnError("broken")
        made = types_pb2.Job()
        made.CopyFrom(draft)
        made.num_splits = 10 + draft.partitions
        return made


def draft(name: str, partitions: int = 1) -> types_pb2.Job:
    return types_pb2.Job(name=name, partitions=partitions)


def test_jobs_that_differ_in_their_name_are_described_once() -> None:
    describe = Describe()
    described = Described(describe)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(described.job, [draft(f"job-{i}") for i in range(8)]))
    assert len(describe.drafts) == 1
    assert [(job.name, job.num_splits) for job in found] == [(f"job-{i}", 11) for i in range(8)]


def test_another_draft_is_described_anew_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    describe = Describe()
    described = Described(describe)
    wanted = [1, 2, 1, 3, 1]  # the last was forgotten for the third
    assert [described.job(draft("a", p)).num_splits for p in wanted] == [10 + p for p in wanted]
    assert [one.partitions for one in describe.drafts] == [1, 2, 3, 1]


def test_who_gets_a_job_may_change_it_and_an_error_is_not_kept() -> None:
    describe = Describe()
    described = Described(describe)
    describe.broken = True
    with pytest.raises(DatasetFnError):
        described.job(draft("a"))
    describe.broken = False
    described.job(draft("a")).num_splits = 1
    assert described.job(draft("a")).num_splits == 11
