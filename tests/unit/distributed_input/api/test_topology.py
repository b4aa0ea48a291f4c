"""Which numbers of trainers can share an input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.api.topology import (
    default_partitions,
    divisors,
    possible_trainers,
    trainers_problem,
)
from distributed_input.order.share import share_of


@given(st.data())
def test_a_problem_is_what_a_sidecar_would_refuse(data: st.DataObject) -> None:
    parallel = data.draw(st.booleans())
    rows = data.draw(st.none() | st.integers(1, 96))
    partitions = data.draw(st.sampled_from(divisors(rows)) if rows else st.integers(1, 24))
    trainers = data.draw(st.integers(1, 30))
    job = types_pb2.Job(
        name="train",
        partitions=partitions,
        global_batch_size=rows or 0,
        mode=types_pb2.PARALLEL_EPOCHS if parallel else types_pb2.DISTRIBUTED_EPOCH,
    )
    try:
        share_of(job, 0, trainers)
        refused = False
    except ConfigError:
        refused = True
    found = trainers_problem(trainers, partitions, rows, parallel=parallel)
    assert bool(found) == refused, found


@pytest.mark.parametrize(
    ("numbers", "parallel", "text"),
    [
        (
            (3, 8, None),
            False,
            "3 trainers cannot divide 8 partitions. Use 1, 2, 4 or 8 trainers, or set "
            "spec.partitions to a multiple of 3",
        ),
        (
            (3, None, 24),
            False,
            "3 trainers cannot divide 8 partitions. Use 1, 2, 4 or 8 trainers, or set "
            "spec.partitions to 3, 6, 12 or 24",
        ),
        (
            (3, 8, 64),
            False,
            "3 trainers cannot divide 8 partitions. Use 1, 2, 4 or 8 trainers, or set "
            "spec.partitions and the global batch size (spec.batching.globalBatchSize, or in "
            "dataset_fn) to multiples of 3",
        ),
        (
            (9, 8, None),
            False,
            "9 trainers cannot share 8 partitions. Use 1, 2, 4 or 8 trainers, or set "
            "spec.partitions to a multiple of 9",
        ),
        (
            (3, 8, 64),
            True,
            "3 trainers cannot divide a global batch of 64 rows. Set "
            "spec.batching.globalBatchSize to a multiple of 3, or use 1, 2, 4, 8, 16, 32 or 64 "
            "trainers",
        ),
        ((3, None, None), False, ""),
    ],
)
def test_the_text_has_valid_numbers(
    numbers: tuple[int, int | None, int | None], parallel: bool, text: str
) -> None:
    assert trainers_problem(*numbers, parallel=parallel) == text


def test_the_default_partitions_divide_the_batch() -> None:
    assert [default_partitions(rows) for rows in (1, 7, 12, 64, 81)] == [1, 7, 6, 8, 3]


def test_many_numbers_are_shortened() -> None:
    assert possible_trainers(1) == "1"
    assert possible_trainers(360) == "1, 2, 3, 4, 5, 6, 8, 9, …"
