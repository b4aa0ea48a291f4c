from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from distributed_input.api.errors import PositionError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.api.proto.trainer_pb2 import Anchor, Position
from distributed_input.api.proto.trainer_pb2 import Prefix as PrefixMessage
from distributed_input.order import identity
from distributed_input.order.share import share_of
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.steps import resume
from distributed_input.sidecar.streams.partition_reader import PartitionPosition
from tests.unit.distributed_input.dispatcher.builders import fact
from tests.unit.distributed_input.sidecar.steps.clocks import Clock
from tests.unit.distributed_input.sidecar.steps.readers import GivenTotals


def job(**fields: Any) -> types_pb2.Job:
    fields = {"name": "train", "seed": 7, "partitions": 4, "global_batch_size": 8, **fields}
    return types_pb2.Job(**fields)


def saved(**fields: Any) -> Position:
    fields = {
        "job": "train", "seed": 7, "partitions": 4, "global_batch_size": 8, "consumers": 2,
        "format": identity.FORMAT, **fields,
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


def test_a_position_of_parallel_epochs_restores_only_its_own_consumer() -> None:
    own = job(mode=types_pb2.PARALLEL_EPOCHS)
    position = saved(consumer=1, mode=own.mode)
    resume.check_position(position, own, share_of(own, 1, 2))
    for consumer, consumers in ((0, 2), (1, 4)):
        with pytest.raises(PositionError, match="consumer 1 of 2 restores only that consumer"):
            resume.check_position(position, own, share_of(own, consumer, consumers))


def test_rows_follow_from_the_step_and_from_known_totals() -> None:
    share = share_of(job(), 0, 1)
    position = saved(step=3)
    assert resume.rows_at(position, job(), share, (0, 2), {}) == {0: 6, 2: 6}
    # What partition 0 has too few, partition 2 gives.
    assert resume.rows_at(position, job(), share, (0, 2), {0: 3}) == {0: 3, 2: 9}


def test_elements_of_a_step_begun_count_only_if_the_step_is_cut_otherwise() -> None:
    whole = job(global_batch_size=0)
    position = saved(step=3, extra_units=1, global_batch_size=0)
    rows = {
        consumers: resume.rows_at(position, whole, share_of(whole, 0, consumers), (0, 2), {})
        for consumers in (1, 2)
    }
    assert rows[2] == {0: 3, 2: 3}
    assert rows[1] == {0: 4, 2: 3}


def test_a_position_within_a_step_needs_the_same_units() -> None:
    inside = saved(step=3, extra_units=1, units_per_step=4)
    resume.check_position(inside, job(), share_of(job(), 0, 2, 4))
    for consumers, replicas in ((4, 1), (2, 1), (2, 2)):
        with pytest.raises(PositionError, match=f"now: {consumers} with {replicas}. Run as many"):
            resume.check_position(inside, job(), share_of(job(), 0, consumers, replicas))
    whole, inside.global_batch_size = job(global_batch_size=0), 0
    resume.check_position(inside, whole, share_of(whole, 0, 4))


SPLITS = [5, 1, 3]
ANCHORS = [Anchor(), Anchor(ordinal=1, rows=10)]
PREFIX = PrefixMessage(partition=1, split=1, rows=4, digest=99)


@pytest.mark.parametrize(
    ("rows", "start"),
    [
        (15, PartitionPosition(1, 10, 15, Prefix(4, 99))),
        (14, PartitionPosition(1, 10, 14, Prefix(4, 99))),
        (13, PartitionPosition(1, 10, 13)),  # before the end of the prefix
        (10, PartitionPosition(1, 10, 10)),  # at the anchor
        (9, PartitionPosition(0, 0, 9)),  # before the anchor
    ],
)
def test_a_partition_is_opened_at_the_last_known_border(
    rows: int, start: PartitionPosition
) -> None:
    position = saved(anchors=ANCHORS, prefixes=[PREFIX])
    assert resume.start_of(position, 1, rows, SPLITS) == start


@pytest.mark.parametrize(("rows", "expected"), [(3, Prefix(3, 7)), (0, None), (4, None)])
def test_a_partition_has_the_anchor_of_its_prefix(rows: int, expected: Prefix | None) -> None:
    prefix = PrefixMessage(
        partition=1, split=1, rows=4, digest=99, anchor_rows=rows, anchor_digest=7
    )
    found = resume.start_of(saved(anchors=ANCHORS, prefixes=[prefix]), 1, 15, SPLITS).prefix
    assert found is not None
    assert found.anchor == expected


def test_only_the_prefix_of_the_opened_split_is_used() -> None:
    other = PrefixMessage(partition=1, split=3, rows=4, digest=99)
    position = saved(anchors=ANCHORS, prefixes=[other])
    assert resume.start_of(position, 1, 15, SPLITS).prefix is None


def test_totals_are_known_of_partitions_that_had_ended() -> None:
    anchors = [Anchor(ordinal=1, rows=3, ended=True), Anchor(ordinal=1, rows=4)]
    assert resume.known_totals(saved(anchors=anchors)) == {0: 3}


def test_a_partition_at_its_end_has_no_split_to_check() -> None:
    position = saved(anchors=[Anchor(), Anchor(ordinal=3, rows=10)], prefixes=[PREFIX])
    assert resume.start_of(position, 1, 15, SPLITS) == PartitionPosition(3, 10, 15)


def test_rows_count_from_the_base_of_the_position() -> None:
    position = saved(step=3, base_step=1, base_rows=[2, 3, 4, 5])
    assert resume.rows_at(position, job(), share_of(job(), 0, 2), (1, 3), {}) == {1: 7, 3: 9}


def test_a_consumer_with_a_single_partition_has_all_rows_of_its_steps() -> None:
    position = saved(consumers=4, step=3)
    assert resume.rows_at(position, job(), share_of(job(), 0, 4), (1,), {}) == {1: 6}


# Opening the partitions of a consumer.


def opened(
    position: Position,
    own: types_pb2.Job | None = None,
    consumers: int = 1,
    totals: Mapping[int, int] | None = None,
    reports: Sequence[Sequence[PartitionFact]] = (),
    consumer: int = 0,
) -> tuple[list[int], GivenTotals]:
    """Open the partitions of a consumer. Return the rows before this pass, and the reader."""
    own = own or job()
    reader = GivenTotals(own, totals or {}, *reports)
    any_reader: Any = reader
    return resume.open_at(any_reader, share_of(own, consumer, consumers), position), reader


def test_partitions_that_are_shorter_than_assumed_move_the_others() -> None:
    """Three steps are 24 rows: partition 0 has 3 of them, partition 1 has 6 in all."""
    rows, reader = opened(saved(consumers=1, step=3), totals={0: 3, 1: 6})
    assert reader.opened == [(0, 6), (1, 6), (2, 6), (3, 6), (1, 9), (2, 8), (3, 7)]
    assert rows == [3, 6, 8, 7]
    assert reader.heartbeats == 0, "the consumer is alone"


def test_known_totals_are_not_waited_for() -> None:
    anchors = [Anchor(), Anchor(rows=4, ended=True), Anchor(), Anchor(rows=3, ended=True)]
    rows, reader = opened(saved(step=3, anchors=anchors), consumers=2)
    assert rows == [6, 4, 6, 3]
    assert reader.opened == [(0, 6), (2, 6)]
    assert reader.heartbeats == 1, "the other consumer waits for our facts"


def test_the_facts_confirm_the_rows_of_the_other_consumers() -> None:
    reports = [
        [fact(1, rows_seen=6)],
        [fact(3, rows_seen=4, ended=True)],
        [fact(1, rows_seen=7)],
        [fact(1, rows_seen=8)],
    ]
    rows, reader = opened(saved(step=3), consumers=2, reports=reports)
    assert rows == [6, 8, 6, 4]
    assert (reader.unread, reader.heartbeats) == (0, 2)


def test_each_new_fact_restarts_the_deadline_of_a_wait(clock: Clock) -> None:
    reports: list[list[PartitionFact]] = [[fact(3, rows_seen=6)], [fact(1, rows_seen=5)]]
    reports += [[fact(1, remade=1)], [], []]
    own = job()
    reader = GivenTotals(own, {}, *reports)
    any_reader: Any = reader

    def wait() -> None:
        clock.now += 9  # of 10 s

    reader.on_wait = wait
    with pytest.raises(UnavailableError, match="positions in partition 1"):
        resume.open_at(any_reader, share_of(own, 0, 2), saved(step=3))
    assert reader.unread == 0


def test_the_position_of_another_job_opens_nothing() -> None:
    with pytest.raises(PositionError):
        opened(saved(seed=8))


def test_in_parallel_epochs_a_consumer_reads_all_partitions_together() -> None:
    """A step has 4 of the 8 rows for each of the two consumers."""
    rows, reader = opened(
        saved(step=3, mode=types_pb2.PARALLEL_EPOCHS),
        job(mode=types_pb2.PARALLEL_EPOCHS),
        consumers=2,
    )
    assert rows == [3, 3, 3, 3]
    assert reader.opened == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    "fields",
    [
        {"consumers": 0},
        {"consumers": 2**32 - 1},
        {"consumer": 2},
        {"step": 1, "base_step": 2},
        {"extra_units": 2**31},
        {"base_rows": [1]},
        {"anchors": [Anchor()]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_position_with_impossible_numbers_is_refused(fields: Any) -> None:
    with pytest.raises(PositionError, match="damaged"):
        resume.check_position(saved(**fields), job(), share_of(job(), 0, 2))


def test_a_step_of_whole_elements_has_one_for_each_partition() -> None:
    whole = job(global_batch_size=0)
    share = share_of(whole, 0, 2)
    inside = saved(global_batch_size=0, extra_units=1)
    resume.check_position(inside, whole, share)
    inside.extra_units = 2
    with pytest.raises(PositionError, match="damaged"):
        resume.check_position(inside, whole, share)


def test_in_parallel_epochs_there_may_be_more_consumers_than_partitions() -> None:
    parallel = job(mode=types_pb2.PARALLEL_EPOCHS, global_batch_size=0)
    position = saved(consumers=9, consumer=8, global_batch_size=0, mode=parallel.mode)
    resume.check_position(position, parallel, share_of(parallel, 8, 9))
