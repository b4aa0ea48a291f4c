from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.order import mixture_jobs
from distributed_input.order.job_config import job_of_config

ENTRY_POINT = {"entryPoint": "data:train", "args": {"b": 1, "a": 2}, "source": {"path": "/code"}}


def job_of(name: str, spec: dict[str, Any]) -> types_pb2.Job:
    return job_of_config(name, InputConfig.from_json(spec))


def test_an_empty_spec_gives_the_defaults() -> None:
    assert job_of("train", {}) == types_pb2.Job(name="train")


def test_all_fields_of_the_spec_are_used() -> None:
    job = job_of(
        "train",
        {
            "seed": 5,
            "processingMode": "parallel_epochs",
            "numSplits": 8,
            "partitions": 4,
            "batching": {"globalBatchSize": 16, "remainder": "pad"},
            "epochs": 3,
            "determinism": "strict",
        },
    )
    assert job == types_pb2.Job(
        name="train",
        seed=5,
        mode=types_pb2.PARALLEL_EPOCHS,
        num_splits=8,
        partitions=4,
        global_batch_size=16,
        remainder=types_pb2.PAD,
        epochs=3,
        strict=True,
    )


def test_the_dataset_id_depends_on_the_entry_point_alone() -> None:
    job = job_of("train", {"dataset": ENTRY_POINT})
    assert job.entry_point == types_pb2.EntryPoint(
        target="data:train", args_json='{"a": 2, "b": 1}', path="/code"
    )
    reordered = {**ENTRY_POINT, "args": {"a": 2, "b": 1}}
    assert job_of("eval", {"dataset": reordered, "seed": 9}).dataset_id == job.dataset_id
    other = {**ENTRY_POINT, "args": {"a": 3, "b": 1}}
    assert job_of("train", {"dataset": other}).dataset_id != job.dataset_id


RECORD = {"step": "parse", "index": 7}


def test_excluded_records_are_those_of_the_source() -> None:
    records = [{**RECORD, "file": "/a", "split": 0, "epoch": 2}, {**RECORD, "source": "b"}]
    mixture = {"mixture": {"weights": {"a": 1, "b": 1}}}
    job = job_of("train", {"dataset": ENTRY_POINT, "badRecords": {"exclude": records}, **mixture})
    first, second = (types_pb2.ExcludedRecord(step="parse", index=7) for _ in range(2))
    first.file, first.split, first.epoch = "/a", 0, 2
    found = [list(one.bad_records.excluded) for one in (job, *job.sources)]
    assert found == [[first], [first], [first, second]]
    assert first.HasField("split")
    assert not second.HasField("split")
    assert job.bad_records.per_split == 0


def test_each_source_has_limits_of_its_own_or_those_of_the_input() -> None:
    sources = {"a": {"maxPerSplit": 3}, "b": {"maxPerSplit": 4, "maxPercent": 5}}
    bad = {"onError": "skip", "maxPerSplit": 7, "sources": sources}
    mixture = {"weights": {"a": 1, "b": 1, "c": 1}}
    job = job_of("train", {"dataset": ENTRY_POINT, "badRecords": bad, "mixture": mixture})
    found = [(one.bad_records.per_split, one.bad_records.percent) for one in (job, *job.sources)]
    assert found == [(7, 10), (3, 10), (4, 5), (7, 10)]
    drafts = [mixture_jobs.source_draft(job, one) for one in job.sources]
    assert [one.bad_records for one in drafts] == [one.bad_records for one in job.sources]


def test_packing_is_a_part_of_the_entry_point() -> None:
    plain = job_of("train", {"dataset": ENTRY_POINT})
    packing = {"length": 8, "method": "first_fit", "openSequences": 2}
    job = job_of("train", {"dataset": ENTRY_POINT, "packing": packing})
    expected = types_pb2.Packing(length=8, method="first_fit", open_sequences=2)
    assert job.entry_point.packing == expected
    mixture = {"mixture": {"weights": {"a": 1, "b": 1}}}
    mixed = job_of("train", {"dataset": ENTRY_POINT, "packing": packing, **mixture})
    assert [one.entry_point.packing for one in mixed.sources] == [expected] * 2
    assert len({plain.dataset_id, job.dataset_id, *(one.dataset_id for one in mixed.sources)}) == 4


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"processingMode": "x"}, "processingMode"),
        ({"batching": {"remainder": "x"}}, "remainder"),
    ],
)
def test_the_error_of_an_unknown_value_has_the_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}: expected one of .*, got 'x'"):
        job_of("train", spec)
