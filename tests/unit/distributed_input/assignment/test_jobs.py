"""Names of jobs, and the fields that depend on the dataset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.assignment.jobs import (
    SPLITS_PER_PARTITION,
    DatasetFacts,
    check_name,
    complete,
    full_name,
    input_of,
    partitions_of_draft,
    splits_of_draft,
)


@pytest.mark.parametrize("name", ["", "a", "eval-2", "A.b_c", "x" * 63])
def test_valid_names_are_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["-a", "a-", "a/b", "x" * 64, "ä", "a b"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 63 letters"):
        check_name(name)


@pytest.mark.parametrize("job", ["", "eval"])
def test_a_full_name_has_its_input(job: str) -> None:
    assert input_of(full_name("train", job)) == "train"


@given(st.integers(1, 1 << 20))
def test_default_partitions_divide_the_global_batch(rows: int) -> None:
    assert rows % partitions_of_draft(types_pb2.Job(global_batch_size=rows)) == 0


FACTS = st.builds(
    DatasetFacts,
    element=st.none(),
    infinite=st.booleans(),
    policy=st.sampled_from(["", "FILE", "DATA", "OFF"]),
    files=st.none() | st.integers(0, 100),
)


@given(FACTS, st.integers(1, 64))
def test_default_splits_are_bounded(facts: DatasetFacts, partitions: int) -> None:
    splits = splits_of_draft(types_pb2.Job(), partitions, facts)
    assert 1 <= splits <= SPLITS_PER_PARTITION * partitions


def test_two_batch_sizes_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"globalBatchSize is 8, but dataset_fn uses .* 16 rows"):
        complete(types_pb2.Job(global_batch_size=8), DatasetFacts(None, asked_batch=16))  # type: ignore[arg-type]
