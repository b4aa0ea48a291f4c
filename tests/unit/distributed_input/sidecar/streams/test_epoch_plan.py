from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.order.splits import place
from distributed_input.sidecar.streams.epoch_plan import EpochPlan
from tests.unit.distributed_input.sidecar.system import NUMBERS


def job(
    mode: types_pb2.ProcessingMode = types_pb2.DISTRIBUTED_EPOCH, splits: int = 12
) -> types_pb2.Job:
    return types_pb2.Job(
        seed=7, num_splits=splits, partitions=3, mode=mode, row_spec=NUMBERS.to_json()
    )


def test_all_consumers_of_a_distributed_epoch_have_the_same_plan() -> None:
    assert EpochPlan.of_job(job(), 1, 0) == EpochPlan.of_job(job(), 1, 1)


def test_each_consumer_of_parallel_epochs_has_its_own_order() -> None:
    parallel = job(types_pb2.PARALLEL_EPOCHS)
    first, second = (EpochPlan.of_job(parallel, 1, consumer) for consumer in range(2))
    assert first.seed != second.seed
    assert first.deal != second.deal
    # Positions that were saved before need the same order again.
    assert (first.seed, second.seed) == (mix(7, 1), mix(7, 2))


def test_keys_of_one_split_differ_between_epochs() -> None:
    assert EpochPlan.of_job(job(), 0, 0).key(5) != EpochPlan.of_job(job(), 1, 0).key(5)


@given(st.integers(0, 20), st.integers(0, 12))
def test_concurrent_keys_are_those_of_all_ordinals_of_a_group(splits: int, workers: int) -> None:
    plan = EpochPlan.of_job(job(splits=splits), 2, 0)
    turns = max(2, -(-workers // 3))
    for ordinal in range(max(map(len, plan.deal))):
        found = plan.concurrent_keys(ordinal, workers)
        assert found == plan.concurrent_keys(ordinal - ordinal % turns, workers)
        expected = [plan.key(own[ordinal]) for own in plan.deal if ordinal < len(own)]
        assert list(found[ordinal % turns]) == expected
        assert len(found) == turns


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_all_workers_get_splits_whatever_number_is_open(
    splits: int, workers: int, turns: int
) -> None:
    plan = EpochPlan.of_job(job(splits=splits), 2, 0)
    found: dict[int, int] = {}
    for ordinal in range(min(turns, max(map(len, plan.deal)))):
        placed = place(plan.concurrent_keys(ordinal, workers), range(workers))
        found |= {
            plan.key(own[ordinal]): placed[plan.key(own[ordinal])]
            for own in plan.deal
            if ordinal < len(own)
        }
    group = 3 * max(2, -(-workers // 3))
    whole = len(found) // group
    load = Counter(found.values())
    assert min(load[worker] for worker in range(workers)) >= whole * (group // workers)
    assert max(load.values()) <= -(-len(found) // group) * -(-group // workers)
