from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.trainer_pb2 import Anchor, Position
from distributed_input.api.proto.trainer_pb2 import Prefix as PrefixMessage
from distributed_input.assignment.share import share_of
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.steps import resume
from distributed_input.sidecar.streams.partition_reader import PartitionStart


def job(**fields: Any) -> types_pb2.Job:
    fields = {"name": "train", "seed": 7, "partitions": 4, "global_batch_size": 8, **fields}
    return types_pb2.Job(**fields)


def saved(**fields: Any) -> Position:
    fields = {
        "job": "train", "seed": 7, "partitions": 4, "global_batch_size": 8, "consumers": 2, **fields
    }  # fmt: skip
    return Position(**fields)


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (saved(job="other"), "name = 'other', the job now has 'train'"),
        (saved(partitions=2), "spec.partitions = 2, the job now has 4"),
        (saved(seed=8), "spec.seed = 8"),
        (saved(global_batch_size=4), "spec.batching.globalBatchSize = 4"),
    ],
)
def test_the_error_of_another_jobs_position_has_the_difference(
    position: Position, message: str
) -> None:
    with pytest.raises(PositionError, match=message):
        resume.check_position(position, job(), share_of(job(), 0, 2))


def test_a_position_of_another_job_of_the_same_input_is_valid() -> None:
    resume.check_position(saved(job="train/sweep"), job(), share_of(job(), 0, 2))


def test_a_strict_position_restores_any_consumer_of_any_count() -> None:
    for consumers in (1, 2, 4):
        for consumer in range(consumers):
            resume.check_position(saved(), job(), share_of(job(), consumer, consumers))


@pytest.mark.parametrize("fields", [{"mode": types_pb2.PARALLEL_EPOCHS}, {"order": types_pb2.ANY}])
def test_other_positions_restore_only_their_own_consumer(fields: dict[str, int]) -> None:
    own = job(**fields)
    resume.check_position(saved(consumer=1), own, share_of(own, 1, 2))
    for consumer, consumers in ((0, 2), (1, 4)):
        with pytest.raises(PositionError, match="consumer 1 of 2 restores only that consumer"):
            resume.check_position(saved(consumer=1), own, share_of(own, consumer, consumers))


def test_rows_follow_from_the_step_and_from_known_totals() -> None:
    share = share_of(job(), 0, 1)
    position = saved(step=3)
    assert resume.rows_at(position, job(), share, (0, 2), {}) == {0: 6, 2: 6}
    # What partition 0 has too few, partition 2 gives.
    assert resume.rows_at(position, job(), share, (0, 2), {0: 3}) == {0: 3, 2: 9}


def test_units_of_a_step_begun_count_only_if_the_step_is_cut_otherwise() -> None:
    position = saved(step=3, extra_units=1)
    rows = {
        consumers: resume.rows_at(position, job(), share_of(job(), 0, consumers), (0, 2), {})
        for consumers in (1, 2)
    }
    assert rows[2] == {0: 6, 2: 6}
    assert sum(rows[1].values()) == 12 + 4


def test_own_rows_are_taken_as_they_are() -> None:
    position = saved(consumers=1, own_rows=[5, 6, 7, 8])
    rows = resume.rows_at(position, job(), share_of(job(), 0, 1), (0, 1, 2, 3), {})
    assert rows == {0: 5, 1: 6, 2: 7, 3: 8}


SPLITS = [5, 1, 3]
ANCHORS = [Anchor(), Anchor(ordinal=1, rows=10)]
PREFIX = PrefixMessage(partition=1, split=1, rows=4, digest=99)


@pytest.mark.parametrize(
    ("rows", "start"),
    [
        (15, PartitionStart(1, 10, 15, Prefix(4, 99, 1))),
        (14, PartitionStart(1, 10, 14, Prefix(4, 99, 1))),
        (13, PartitionStart(1, 10, 13)),  # before the end of the prefix
        (10, PartitionStart(1, 10, 10)),  # at the anchor
        (9, PartitionStart(0, 0, 9)),  # before the anchor
    ],
)
def test_a_partition_is_opened_at_the_last_known_border(rows: int, start: PartitionStart) -> None:
    position = saved(anchors=ANCHORS, prefixes=[PREFIX])
    assert resume.start_of(position, 1, rows, SPLITS) == start


def test_only_the_prefix_of_the_opened_split_is_used() -> None:
    other = PrefixMessage(partition=1, split=3, rows=4, digest=99)
    position = saved(anchors=ANCHORS, prefixes=[other])
    assert resume.start_of(position, 1, 15, SPLITS).prefix is None


def test_a_prefix_has_the_version_that_it_was_saved_with() -> None:
    old = resume.start_of(saved(anchors=ANCHORS, prefixes=[PREFIX]), 1, 15, SPLITS)
    new = resume.start_of(saved(anchors=ANCHORS, prefixes_v2=[PREFIX]), 1, 15, SPLITS)
    assert (old.prefix, new.prefix) == (Prefix(4, 99, 1), Prefix(4, 99, 2))


def test_totals_are_known_of_partitions_that_had_ended() -> None:
    anchors = [Anchor(ordinal=1, rows=3, ended=True), Anchor(ordinal=1, rows=4)]
    assert resume.known_totals(saved(anchors=anchors)) == {0: 3}


def test_a_partition_at_its_end_has_no_split_to_check() -> None:
    position = saved(anchors=[Anchor(), Anchor(ordinal=3, rows=10)], prefixes=[PREFIX])
    assert resume.start_of(position, 1, 15, SPLITS) == PartitionStart(3, 10, 15)


def test_rows_count_from_the_base_of_the_position() -> None:
    position = saved(step=3, base_step=1, base_rows=[2, 3, 4, 5])
    assert resume.rows_at(position, job(), share_of(job(), 0, 2), (1, 3), {}) == {1: 7, 3: 9}


def test_the_position_of_a_single_consumer_restores_several_in_any_order() -> None:
    own = job(order=types_pb2.ANY)
    resume.check_position(saved(consumers=1), own, share_of(own, 1, 2))
