"""What the steps of a mixture take, with the facts that the test gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from distributed_input.api.errors import PositionError, UnavailableError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.order import mixture
from distributed_input.order.share import share_of
from distributed_input.sidecar.steps import mixed_steps, resume
from distributed_input.sidecar.steps.mixed_steps import MixedSteps
from tests.unit.distributed_input.dispatcher.builders import fact
from tests.unit.distributed_input.sidecar.steps.readers import GivenFacts, GivenTotals

LOG = [types_pb2.Weights(weights=[1, 1]), types_pb2.Weights(step=8, weights=[0, 1])]


def job(exhaustion: Any = types_pb2.STOP) -> types_pb2.Job:
    """Return a job of two sources and two partitions: lists 0 and 1, and lists 2 and 3."""
    return types_pb2.Job(
        name="train",
        partitions=2,
        num_splits=8,
        global_batch_size=8,
        sources=[types_pb2.Job(num_splits=4) for _ in range(2)],
        weights=LOG,
        exhaustion=exhaustion,
    )


def steps_of(
    *reports: Sequence[PartitionFact], base: Sequence[int] = (0, 0, 0, 0), **fields: Any
) -> tuple[MixedSteps, GivenFacts]:
    """Return the steps of consumer 0 of 2, which owns lists 0 and 2."""
    mixed = job(**fields)
    reader: Any = GivenFacts(mixed, *reports)
    return MixedSteps(reader, share_of(mixed, 0, 2), LOG, 0, base), reader


def seen(books: int, web: int, **fields: Any) -> list[PartitionFact]:
    return [fact(1, rows_seen=books, **fields), fact(3, rows_seen=web, **fields)]


@pytest.mark.parametrize(
    ("reports", "step", "full", "waits"),
    [
        ([seen(6, 6)], 2, True, 0),
        ([seen(6, 5), seen(6, 6)], 2, True, 1),
        ([seen(6, 5), seen(6, 5, ended=True)], 2, False, 1),
        ([[fact(3, rows_seen=5, ended=True)]], 2, False, 0),  # although list 1 is not known
        ([seen(16, 20, ended=True)], 8, True, 0),  # books give no rows from step 8 on
        ([seen(16, 19, ended=True)], 8, False, 0),
    ],
)
def test_all_lists_of_the_others_must_have_rows_for_a_step(
    reports: list[list[PartitionFact]], step: int, full: bool, waits: int
) -> None:
    mixed, reader = steps_of(*reports)
    assert mixed.all_have_full_step(step) is full
    assert len(reports) - 1 - reader.unread == waits
    assert not mixed.any_has_rows(step)


@pytest.mark.parametrize(
    ("reports", "own", "short", "waits"),
    [
        ([seen(6, 6)], (), set(), 0),
        ([seen(6, 6)], (2,), {2}, 0),
        ([seen(6, 5, ended=True)], (0,), {0, 3}, 0),
        ([[fact(3, rows_seen=5, ended=True)], seen(6, 5)], (), {3}, 1),  # list 1 was not known
        ([seen(5, 5), [fact(1, rows_seen=6)], seen(6, 5, ended=True)], (), {3}, 2),
    ],
)
def test_the_lists_that_are_short_are_known_once_all_lists_are(
    reports: list[list[PartitionFact]], own: tuple[int, ...], short: set[int], waits: int
) -> None:
    mixed, reader = steps_of(*reports, exhaustion=types_pb2.DROP_SOURCE)
    assert mixed.short_lists(2, own) == short
    assert len(reports) - 1 - reader.unread == waits


def test_facts_are_requested_ahead_of_need_and_a_wait_has_a_deadline() -> None:
    mixed, reader = steps_of(seen(1000, 1000))
    reader.reported_rows = 10_000
    assert mixed.all_have_full_step(0)
    assert reader.heartbeats == 0
    reader.reported_rows = 100
    assert mixed.all_have_full_step(1)
    assert reader.heartbeats == 1
    mixed, reader = steps_of(seen(1, 1), seen(1, 1))
    reader.timeout_seconds = 0
    with pytest.raises(UnavailableError, match="other trainers' rows of a mixture"):
        mixed.all_have_full_step(1)


def test_lists_that_repeat_need_no_other_consumer() -> None:
    mixed, reader = steps_of([], exhaustion=types_pb2.REPEAT)
    assert mixed.is_alone
    assert mixed.all_have_full_step(10**6)
    assert reader.heartbeats == 0


def test_anchors_are_the_borders_before_the_rows_of_a_step() -> None:
    facts = [fact(1, [3, 4], rows_seen=9), fact(3, [5], rows_seen=6)]
    mixed, _ = steps_of(facts, exhaustion=types_pb2.REPEAT)
    assert mixed.rows(3).tolist() == [6, 6, 6, 6]
    assert {one: (a.ordinal, a.rows) for one, a in mixed.anchors(3).items()} == {
        1: (1, 3),
        3: (1, 5),
    }


def test_anchors_of_a_position_stay_until_facts_have_later_ones() -> None:
    """The facts of others come later, and those of old rounds are thinned out."""
    before = {
        0: trainer_pb2.Anchor(ordinal=9, rows=1),  # its own
        1: trainer_pb2.Anchor(ordinal=1, rows=3),
        3: trainer_pb2.Anchor(ordinal=1, rows=20),  # of more rows than the position has
    }
    mixed = job(types_pb2.REPEAT)
    reader: Any = GivenFacts(mixed, [fact(1, [2], rows_seen=2), fact(3, [5], rows_seen=6)])
    steps = MixedSteps(reader, share_of(mixed, 0, 2), LOG, 3, [6, 6, 6, 6], before)
    assert {one: (a.ordinal, a.rows) for one, a in steps.anchors(0).items()} == {
        1: (1, 3),
        3: (1, 5),
    }
    reader = GivenFacts(mixed, [fact(1, [3, 2], rows_seen=9), fact(3, [5], rows_seen=6)])
    steps = MixedSteps(reader, share_of(mixed, 0, 2), LOG, 3, [6, 6, 6, 6], before)
    assert steps.anchors(0)[1].rows == 5


def test_the_turns_of_both_consumers_are_the_takes_of_a_step() -> None:
    mixed, _ = steps_of([])
    assert mixed.turns(0) == [(0, 2), (2, 2)]
    assert mixed.turns(9) == [(2, 4)]


def test_a_position_restores_the_rows_and_the_weights() -> None:
    mixed = job()
    position = trainer_pb2.Position(step=10, base_step=7, base_rows=[14, 14, 14, 14], weights=LOG)
    position.job_weights.extend(LOG)
    assert mixed_steps.rows_of(position, mixed) == [16, 16, 24, 24]
    assert mixed_steps.log_of(position, mixed) == LOG
    changed = [types_pb2.Weights(weights=[3, 1])]
    del mixed.weights[:]
    mixed.weights.extend(changed)
    assert mixed_steps.rows_of(position, mixed) == [16, 16, 24, 24]  # the old weights until then
    assert mixed_steps.log_of(position, mixed) == [
        *LOG,
        types_pb2.Weights(step=10, weights=[3, 1]),
    ]
    position.extra_units = 1  # the begun step is delivered with its weights
    assert mixed_steps.log_of(position, mixed)[-1].step == 11
    assert mixed_steps.log_of(trainer_pb2.Position(), mixed) == changed


def test_positions_are_of_one_sequence_if_they_have_the_same_rows_and_weights() -> None:
    mixed = job()
    later = trainer_pb2.Position(step=10, base_step=10, base_rows=[16, 16, 24, 24])
    later.weights.extend(mixture.log_from(10, LOG))
    later.job_weights.extend(LOG)
    earlier = trainer_pb2.Position(step=7, base_step=7, base_rows=[14, 14, 14, 14], weights=LOG)
    earlier.job_weights.extend(LOG)
    start = trainer_pb2.Position()
    del mixed.weights[:]
    mixed.weights.extend(LOG)
    same = mixed_steps.are_of_one_sequence
    for one in (start, earlier, later):
        for other in (start, earlier, later):
            assert same(one, other, mixed)
    later.base_rows[0] += 1
    later.base_rows[1] -= 1
    assert not same(earlier, later, mixed)
    later.base_rows[:] = [16, 16, 24, 24]
    later.weights[-1].step += 1  # another row of the pattern follows
    assert not same(earlier, later, mixed)
    assert not same(later, start, mixed)


@pytest.mark.parametrize("total", [None, 15])
def test_the_lists_of_a_position_are_opened_behind_its_rows(total: int | None) -> None:
    mixed = job()
    position = trainer_pb2.Position(
        job="train", partitions=2, global_batch_size=8, num_splits=8, format=1, consumers=1,
        step=8, base_step=8, base_rows=[16] * 4, exhaustion=types_pb2.STOP,
        sources=[trainer_pb2.Source(num_splits=4)] * 2,
    )  # fmt: skip
    reader: Any = GivenTotals(mixed, {} if total is None else {2: total})
    reader.deal = mixture.deal(mixed, 0)
    share = share_of(mixed, 0, 2)
    if total is not None:
        with pytest.raises(PositionError, match=r"16 rows .* it now has 15"):
            resume.open_at(reader, share, position)
        return
    assert resume.open_at(reader, share, position) == [16] * 4
    assert reader.opened == [(0, 16), (2, 16)]


def test_log_after_keeps_changes_before_the_step() -> None:
    assert mixture.log_after(9, LOG, LOG)[:2] == LOG
