"""One consumer's share of a step."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.order.share import are_divided, loop_units, share_of


def job(**fields: object) -> types_pb2.Job:
    return types_pb2.Job(**{"name": "train", "partitions": 8, "global_batch_size": 64, **fields})  # type: ignore[arg-type]


def test_the_consumers_batches_add_up_to_the_global_batch() -> None:
    for consumers in (1, 2, 4, 8):
        shares = [share_of(job(), c, consumers) for c in range(consumers)]
        assert sum(share.batch for share in shares) == 64
        assert sorted(p for share in shares for p in share.partitions) == list(range(8))
        assert {share.quota for share in shares} == {8}


def test_replicas_divide_a_batch_evenly() -> None:
    share = share_of(job(), 0, 2, replicas=4)
    assert (share.batch, share.unit_rows, share.units) == (32, 8, 4)


def test_a_step_of_whole_elements_has_one_of_each_partition() -> None:
    share = share_of(job(global_batch_size=0), 1, 4)
    assert (share.partitions, share.batch, share.units, share.whole) == ((1, 5), 2, 2, True)


def test_in_parallel_epochs_every_consumer_owns_all_partitions() -> None:
    share = share_of(job(mode=types_pb2.PARALLEL_EPOCHS), 1, 2)
    assert (len(share.partitions), share.batch) == (8, 32)
    small = share_of(job(mode=types_pb2.PARALLEL_EPOCHS, global_batch_size=8), 1, 2)
    assert (len(small.partitions), small.batch, small.quota) == (8, 4, 1)


@pytest.mark.parametrize(
    ("fields", "consumers", "replicas", "message"),
    [
        ({"partitions": 5}, 1, 1, r"5 does not divide the global batch of 64 .* \[1, 2, 4, 8"),
        ({}, 3, 1, r"3 trainers cannot divide .* one of \[1, 2, 4, 8\] trainers"),
        ({}, 16, 1, r"spec\.partitions: 16 trainers cannot share 8 .* Set it to 16"),
        ({}, 1, 3, r"3 replicas of a trainer cannot divide a batch of 64 rows"),
    ],
)
def test_an_error_has_valid_numbers(
    fields: dict[str, object], consumers: int, replicas: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        share_of(job(**fields), 0, consumers, replicas)


@pytest.mark.parametrize(
    ("policy", "rows", "divided"), [("DATA", 0, True), ("DATA", 64, False), ("", 0, False)]
)
def test_whole_elements_of_a_dataset_are_divided(policy: str, rows: int, divided: bool) -> None:
    assert are_divided(job(shard_policy=policy, global_batch_size=rows)) is divided


@pytest.mark.parametrize(
    ("fields", "replicas", "units"),
    [
        ({}, 4, 4),
        ({}, 0, 1),
        ({"global_batch_size": 0, "shard_policy": "DATA"}, 2, 1),  # elements are divided later
        ({"global_batch_size": 0}, 2, 2),
    ],
)
def test_a_step_of_the_loop_has_a_unit_for_each_replica_that_gets_one(
    fields: dict[str, object], replicas: int, units: int
) -> None:
    assert loop_units(job(**fields), replicas) == units
