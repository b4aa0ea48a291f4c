from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import types_pb2
from distributed_input.sidecar.streams.read_ahead import (
    ReadAhead,
    automatic_read_ahead,
    useful_workers,
)

SPLITS, MOST = st.integers(0, 64), st.integers(0, 64)
CAPACITY, PARTITIONS = st.integers(0, 1024), st.integers(1, 64)


@given(SPLITS, MOST, CAPACITY, PARTITIONS, st.booleans())
def test_the_number_is_within_its_bounds_and_increases_only_while_starved(
    splits: int, most: int, capacity: int, partitions: int, starved: bool
) -> None:
    found = automatic_read_ahead(
        splits, most=most, capacity=capacity, partitions=partitions, starved=starved
    )
    assert min(1, most) <= found <= most
    assert found <= max(1, splits) * (2 if starved else 1)
    if found > 1:  # one split less would be too few for the workers
        assert found * partitions < 2 * capacity


@given(MOST, CAPACITY, PARTITIONS)
def test_starved_steps_open_two_splits_for_each_that_the_workers_can_compute(
    most: int, capacity: int, partitions: int
) -> None:
    ahead = ReadAhead(most, automatic=True, partitions=partitions)
    for _ in range(8):
        ahead.adapt(capacity, waited=0.2, seconds=1.0)
    assert ahead.splits == most or (1 + ahead.splits) * partitions >= 2 * capacity


def test_fewer_workers_need_fewer_splits() -> None:
    ahead = ReadAhead(20, automatic=True, partitions=4)
    for capacity, splits in ((16, 2), (16, 4), (16, 7), (6, 2), (1, 1), (16, 2)):
        ahead.adapt(capacity, waited=1.0, seconds=1.0)
        assert ahead.splits == splits


def test_steps_that_hardly_wait_open_no_more_splits() -> None:
    ahead = ReadAhead(20, automatic=True)
    ahead.adapt(64, waited=0.05, seconds=1.0)
    assert ahead.splits == 1


@given(MOST, CAPACITY)
def test_a_given_number_never_changes(splits: int, capacity: int) -> None:
    ahead = ReadAhead(splits)
    ahead.adapt(capacity, waited=1.0, seconds=1.0)
    assert ahead.splits == splits


@pytest.mark.parametrize(
    ("infinite", "own", "most", "configured", "number", "limit"),
    [
        (False, 8, 3, None, 32, "has 32 splits. Raise spec.numSplits"),
        (False, 2, 9, None, 8, "has 32 splits. Raise spec.numSplits"),
        (False, 8, 2, None, 24, "Raise spec.sidecar.resources.limits.memory"),
        (False, 8, 1, 1, 16, "spec.sidecar.readAhead is 1. Remove it"),
        (False, 8, 2, 3, 24, "Raise spec.sidecar.resources.limits.memory"),
        (True, 8, 1, 1, 8, "Raise spec.partitions"),
    ],
)
def test_useful_workers_have_the_field_that_limits_them(
    infinite: bool, own: int, most: int, configured: int | None, number: int, limit: str
) -> None:
    job = types_pb2.Job(num_splits=32, partitions=8, infinite=infinite)
    found = useful_workers(job, own, most, configured)
    assert found.number == number
    assert limit in found.limit
