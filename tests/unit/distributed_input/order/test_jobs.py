"""Names of jobs, and the fields that depend on the dataset."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.order.jobs import (
    MOST_SPLITS,
    MOST_TRACED,
    SPLITS_PER_PARTITION,
    DatasetFacts,
    check_name,
    complete,
    full_name,
    input_of,
    is_completed,
    memory_warnings,
    partitions_of_draft,
    splits_of_draft,
)
from distributed_input.rows.elements import ElementSpec, Leaf


@pytest.mark.parametrize("name", ["", "a", "eval-2", "A.b_c", "x" * 63])
def test_valid_names_are_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["-a", "a-", "a/b", "x" * 64, "ä", "a b"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 63 letters"):
        check_name(name)


@pytest.mark.parametrize("name", ["copy-1", "eval.copy-12"])
def test_names_of_trainers_that_share_a_rank_are_reserved(name: str) -> None:
    with pytest.raises(ConfigError, match="trainers that share a data rank"):
        check_name(name)
    assert check_name(f"{name}x") == f"{name}x"


@pytest.mark.parametrize("job", ["", "eval"])
def test_a_full_name_has_its_input(job: str) -> None:
    assert input_of(full_name("train", job)) == "train"


@given(st.integers(1, 1 << 20))
def test_default_partitions_divide_the_global_batch(rows: int) -> None:
    assert rows % partitions_of_draft(types_pb2.Job(global_batch_size=rows)) == 0


def _rows_of(size: int) -> ElementSpec:
    return ElementSpec(0, (Leaf("", "dense", "uint8", (None, size)),))


FACTS = st.builds(
    DatasetFacts,
    element=st.sampled_from([1, 100_000, 1 << 20, 1 << 30]).map(_rows_of),
    batched=st.just(True),
    traced=st.booleans(),
    infinite=st.sampled_from([False, True, None]),
    policy=st.sampled_from(["", "FILE", "DATA", "OFF"]),
    files=st.none() | st.integers(0, 10_000),
    rows=st.none() | st.integers(0, 10**7),
    whole=st.booleans(),
)


@given(FACTS, st.integers(1, 64))
def test_default_splits_are_bounded(facts: DatasetFacts, partitions: int) -> None:
    splits = splits_of_draft(types_pb2.Job(), partitions, facts)
    assert 1 <= splits <= max(SPLITS_PER_PARTITION * partitions, MOST_SPLITS)
    whole = facts.infinite is not False or facts.whole or facts.policy == "DATA"
    if facts.policy != "OFF" and whole:
        assert splits == partitions
    elif facts.files:
        assert splits <= facts.files
    if splits > SPLITS_PER_PARTITION * partitions:
        assert splits % partitions == 0 or splits == facts.files
        assert splits <= (MOST_TRACED if facts.traced else MOST_SPLITS)
        if facts.rows is None:
            assert (facts.files or 0) / splits >= 4
        else:
            rows = facts.rows / splits
            assert rows >= 1024 or rows * facts.row_bytes >= 200 << 20 or facts.row_bytes > 1 << 28


@pytest.mark.parametrize(
    ("rows", "files", "splits"),
    [
        (None, None, 32),
        (33_000, None, 32),
        (100_000, None, 96),
        (10**7, None, 512),
        (None, 20, 20),
        (None, 100, 32),
        (None, 400, 96),
        (None, 9000, 512),
        (100_000, 100_000, 96),  # a file for each row
    ],
)
def test_a_large_dataset_has_more_splits(rows: int | None, files: int | None, splits: int) -> None:
    facts = DatasetFacts(ELEMENT, files=files, rows=rows)
    assert splits_of_draft(types_pb2.Job(), 8, facts) == splits


@pytest.mark.parametrize(
    ("row_bytes", "traced", "splits"),
    [(1000, False, 96), (1 << 20, False, 384), (1 << 22, False, 512), (1 << 22, True, 128)],
)
def test_splits_of_large_rows_have_fewer_rows(row_bytes: int, traced: bool, splits: int) -> None:
    facts = DatasetFacts(_rows_of(row_bytes), batched=True, rows=100_000, traced=traced)
    assert splits_of_draft(types_pb2.Job(), 8, facts) == splits


@pytest.mark.parametrize(("files", "warned"), [(3, True), (4, False), (None, False)])
def test_partitions_without_a_file_are_reported(files: int | None, warned: bool) -> None:
    job = complete(types_pb2.Job(partitions=4), DatasetFacts(ELEMENT, files=files))
    assert [text for text in job.warnings if "3 files for 4 partitions: 1 of them" in text] == list(
        job.warnings
    )
    assert len(job.warnings) == warned


@pytest.mark.parametrize(
    ("facts", "given", "amplification"),
    [({}, 0, 0), ({"whole": True}, 0, 4), ({"whole": True}, 12, 12), ({"policy": "DATA"}, 0, 4)],
)
def test_every_split_that_needs_all_records_amplifies_reads(
    facts: dict[str, Any], given: int, amplification: int
) -> None:
    job = complete(types_pb2.Job(partitions=4, num_splits=given), DatasetFacts(ELEMENT, **facts))
    assert job.read_amplification == amplification


@pytest.mark.parametrize(
    ("split_mib", "room_mib", "text"),
    [(10, 80, ""), (10, 79, "all 8 that"), (10, 9, "even one that"), (0, 1, ""), (10, 0, "")],
)
def test_too_little_memory_for_buffers_is_reported(
    split_mib: int, room_mib: int, text: str
) -> None:
    job = types_pb2.Job(partitions=8, num_splits=32, split_bytes=split_mib << 20)
    warnings = memory_warnings(job, room_mib << 20)
    assert len(warnings) == bool(text)
    for warning in warnings:
        assert text in warning
        assert f"hold about 10 MiB, and a worker has {room_mib} MiB" in warning


ELEMENT = ElementSpec(0, (Leaf("", "dense", "int64", (None,)),))
DRAFTS = st.builds(
    types_pb2.Job,
    name=st.just("train"),
    seed=st.integers(0, 2),
    partitions=st.sampled_from([0, 4]),
    num_splits=st.sampled_from([0, 8]),
    global_batch_size=st.sampled_from([0, 16]),
    remainder=st.sampled_from([types_pb2.KEEP, types_pb2.DROP]),
    mode=st.sampled_from([types_pb2.DISTRIBUTED_EPOCH, types_pb2.PARALLEL_EPOCHS]),
)
ENTRY_FACTS = st.builds(
    DatasetFacts,
    element=st.just(ELEMENT),
    asked_batch=st.none() | st.just(16),
    batched=st.booleans(),
    infinite=st.sampled_from([False, True, None]),
    whole=st.booleans(),
    warnings=st.lists(st.just("slow"), max_size=1),
)


@given(DRAFTS, ENTRY_FACTS, DRAFTS)
def test_a_completed_job_is_a_completion_of_its_draft(
    draft: types_pb2.Job, facts: DatasetFacts, other: types_pb2.Job
) -> None:
    assume(not facts.infinite or draft.num_splits <= 4)  # more are refused
    job = complete(draft, facts)
    job.definitions.append(3)
    assert is_completed(draft, job)
    if is_completed(other, job):
        again = complete(other, facts)
        again.definitions.append(3)
        assert again.seed == job.seed
        assert again.partitions == job.partitions or not other.partitions


@pytest.mark.parametrize(
    "changed",
    [{"seed": 1}, {"partitions": 2}, {"num_splits": 4}, {"mode": 1}, {"name": "b"},
     {"remainder": types_pb2.DROP}, {"strict": True}, {"dataset_id": "x"}],
)  # fmt: skip
def test_a_job_of_another_resource_is_no_completion(changed: dict[str, Any]) -> None:
    job = complete(types_pb2.Job(name="a", global_batch_size=16), DatasetFacts(ELEMENT))
    draft = types_pb2.Job(name="a", global_batch_size=16)
    draft.MergeFrom(types_pb2.Job(**changed))
    assert not is_completed(draft, job)


def test_a_job_of_sources_with_other_limits_is_no_completion() -> None:
    job = types_pb2.Job(sources=[types_pb2.Job(dataset_id="a")])
    draft = types_pb2.Job(sources=[types_pb2.Job(dataset_id="a")])
    assert is_completed(draft, job)
    draft.sources[0].bad_records.per_split = 3
    assert not is_completed(draft, job)


def test_two_batch_sizes_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"globalBatchSize is 8, but dataset_fn uses .* 16 rows"):
        complete(types_pb2.Job(global_batch_size=8), DatasetFacts(None, asked_batch=16))  # type: ignore[arg-type]


def test_splits_behind_one_that_never_ends_are_refused() -> None:
    draft = types_pb2.Job(partitions=2, num_splits=4)
    with pytest.raises(ConfigError, match="only the first 2 splits would be read"):
        complete(draft, DatasetFacts(ELEMENT, infinite=True))
    assert (
        complete(types_pb2.Job(partitions=2), DatasetFacts(ELEMENT, infinite=None)).num_splits == 2
    )
    assert not complete(draft, DatasetFacts(ELEMENT, infinite=None)).infinite
