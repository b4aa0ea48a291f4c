from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import types_pb2
from distributed_input.api.sidecar_memory import most_read_ahead
from distributed_input.order.splits import place
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.sidecar.streams.epoch_plan import EpochPlan
from distributed_input.sidecar.streams.read_ahead import (
    _MEASURE_SECONDS,
    _PAUSE_SECONDS,
    _START_SECONDS,
    ReadAhead,
    ReadingTime,
    automatic_read_ahead,
    fitting_splits,
    useful_workers,
)

SPLITS, MOST = st.integers(0, 64), st.integers(0, 64)
CAPACITY, PARTITIONS = st.integers(0, 1024), st.integers(1, 64)


@given(SPLITS, MOST, CAPACITY, PARTITIONS, st.booleans())
def test_the_number_is_within_its_bounds_and_increases_only_if_requested(
    splits: int, most: int, capacity: int, partitions: int, increases: bool
) -> None:
    found = automatic_read_ahead(
        splits, most=most, capacity=capacity, partitions=partitions, increases=increases
    )
    assert min(1, most) <= found <= most
    assert found <= max(1, splits) * (2 if increases else 1)
    if found > 1:  # one split less would be too few for the workers
        assert found * partitions < 2 * capacity


@given(MOST, PARTITIONS, st.none() | st.integers(0, 2000), st.integers(0, 1))
def test_open_splits_fit_into_the_memory_of_the_workers(
    most: int, partitions: int, room: int | None, least: int
) -> None:
    found = fitting_splits(most, partitions, room, least)
    assert 0 <= found <= most
    if room is None:
        assert found == most
    else:
        assert found >= min(most, least)
        assert found <= least or partitions * (1 + found) <= room
        assert found == most or partitions * (2 + found) > room


def test_the_number_follows_the_memory_of_the_workers() -> None:
    room = [10]
    ahead = ReadAhead(20, automatic=True, partitions=8, has_end=True, room=lambda: room[0])
    ahead.start(64)
    assert ahead.splits == 0
    room[0] = 40
    assert max(trials(ahead, 64, 1.5, count=6)) == 4
    room[0] = 16
    assert trials(ahead, 64, 1.5, count=1) == [1]
    assert ReadAhead(3, partitions=8, room=lambda: 0).splits == 3  # configured
    room[0] = 10
    least = ReadAhead(20, True, partitions=8, room=lambda: room[0], least=1)
    least.start(64)
    assert least.splits == 1


def starved(seconds: float, rows: float) -> ReadingTime:
    return ReadingTime(seconds, 0.2 * seconds, round(rows))


def trials(ahead: ReadAhead, capacity: int, gain: float, count: int) -> list[int]:
    """Return the numbers after each trial, if the rows per second increase by `gain` each time."""
    found, rate = [], 1000.0
    for _ in range(count):
        ahead.adapt(capacity, starved(_START_SECONDS, 0))
        before = ahead.splits
        ahead.adapt(capacity, starved(_MEASURE_SECONDS, rate * _MEASURE_SECONDS))
        rate *= gain if ahead.splits > before else 1
        found.append(ahead.splits)
    return found


@given(MOST, CAPACITY, PARTITIONS)
def test_starved_steps_open_two_splits_for_each_that_the_workers_can_compute(
    most: int, capacity: int, partitions: int
) -> None:
    ahead = ReadAhead(most, automatic=True, partitions=partitions, has_end=True)
    trials(ahead, capacity, 1.5, count=8)
    assert ahead.splits == most or (1 + ahead.splits) * partitions >= 2 * capacity


def test_an_increase_without_more_rows_is_taken_back_for_a_while() -> None:
    ahead = ReadAhead(20, automatic=True, has_end=True)
    assert trials(ahead, 64, 1.5, count=2) == [2, 4]
    assert trials(ahead, 64, 1.0, count=1) == [2]
    for _ in range(int(_PAUSE_SECONDS)):
        assert ahead.splits == 2
        ahead.adapt(64, starved(1.0, 9000))
    assert trials(ahead, 64, 1.5, count=2) == [4, 8]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("splits", "most", "gain"), [(1, 2, 1.2), (16, 32, 1.2), (16, 17, 1.0235)])
def test_an_increase_must_bring_a_share_of_the_rows_of_the_further_splits(
    splits: int, most: int, gain: float, kept: bool
) -> None:
    ahead = ReadAhead(most, automatic=True, has_end=True)
    ahead.splits = splits
    ahead.adapt(999, starved(_MEASURE_SECONDS, 10_000))
    assert ahead.splits == most
    ahead.adapt(999, starved(_START_SECONDS, 0))
    ahead.adapt(999, starved(_MEASURE_SECONDS, 10_000 * (gain + (0.001 if kept else -0.001))))
    assert ahead.splits == (most if kept else splits)


def test_an_increase_that_helped_is_kept_when_the_rate_changes_later() -> None:
    ahead = ReadAhead(2, automatic=True, has_end=True)
    ahead.adapt(64, starved(_MEASURE_SECONDS, 1000))
    ahead.adapt(64, starved(_START_SECONDS, 0))
    for rows in (1500, 100, 100):
        ahead.adapt(64, starved(_MEASURE_SECONDS, rows))
        assert ahead.splits == 2


def test_a_trial_takes_until_each_split_has_sent_several_elements() -> None:
    """Rows that arrive together by chance would decide otherwise."""
    ahead = ReadAhead(20, automatic=True, has_end=True, step_rows=100)
    found = []
    for _ in range(5):
        ahead.adapt(64, starved(_MEASURE_SECONDS, 400))
        found.append(ahead.splits)
    assert found == [1, 1, 1, 2, 2], "1,600 rows of two splits"
    slow = ReadAhead(20, automatic=True, has_end=True, step_rows=100)
    for _ in range(6):
        slow.adapt(64, starved(_MEASURE_SECONDS, 1))
        found.append(slow.splits)
    assert found[5:] == [1, 1, 1, 1, 2, 2], "at most 10 s"


def test_fewer_workers_need_fewer_splits() -> None:
    ahead = ReadAhead(20, automatic=True, partitions=4, has_end=True)
    assert trials(ahead, 16, 1.5, count=3) == [2, 4, 7]
    for capacity, splits in ((6, 2), (1, 1)):
        ahead.adapt(capacity, starved(0.5, 100))
        assert ahead.splits == splits


def test_steps_that_hardly_wait_open_no_more_splits() -> None:
    ahead = ReadAhead(20, automatic=True, has_end=True)
    for _ in range(9):
        ahead.adapt(64, ReadingTime(1.0, 0.05, 100))
    assert ahead.splits == 1


def test_no_more_splits_are_opened_before_one_has_ended() -> None:
    ahead = ReadAhead(20, automatic=True)
    assert trials(ahead, 64, 1.5, count=2) == [1, 1]
    ahead.has_end = True
    assert trials(ahead, 64, 1.5, count=2) == [2, 4]


@pytest.mark.parametrize(
    ("capacity", "at_once"),
    [(0, 0), (1, 0), (4, 0), (5, 1), (64, 1)],
)
def test_the_first_splits_have_the_workers_for_themselves(capacity: int, at_once: int) -> None:
    """If these are not more than two for each split that workers can compute, all are used."""
    ahead = ReadAhead(20, automatic=True, partitions=8)
    assert ahead.splits == 0
    ahead.start(capacity)
    assert ahead.splits == at_once
    assert trials(ahead, capacity, 1.5, count=3)[-1] == at_once
    assert trials(ahead, capacity, 1.5, count=1) == [1]  # ten seconds are over


def test_a_split_that_ends_and_new_workers_open_one_ahead() -> None:
    ended, grown = (ReadAhead(20, automatic=True, partitions=8) for _ in range(2))
    ended.has_end = True
    ended.adapt(1, starved(0.5, 1))
    grown.adapt(64, starved(0.5, 1))
    assert (ended.splits, grown.splits) == (1, 1)


@pytest.mark.parametrize("automatic", [False, True])
def test_only_the_splits_that_are_read_help_while_steps_wait_for_them(automatic: bool) -> None:
    ahead = ReadAhead(4, automatic)
    waits = {True: ReadingTime(1.0, 0.0, 9, 0.2), False: ReadingTime(1.0, 0.2, 9, 0.05)}
    found = []
    for kind, times in ((True, 9), (False, 1), (True, 2), (False, 9), (True, 1), (False, 2)):
        for _ in range(times):
            ahead.adapt(64, waits[kind])
        found.append(ahead.only_heads_help)
    assert found == [False, False, True, True, True, False]


@given(MOST, CAPACITY)
def test_a_given_number_never_changes(splits: int, capacity: int) -> None:
    ahead = ReadAhead(splits, has_end=True)
    assert set(trials(ahead, capacity, 1.5, count=3)) == {splits}


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


P, SPLITS_OF_EPOCH, SPLIT_SECONDS, TICK = 8, 512, 20.0, 0.5


class Fleet:
    """A simulation of workers whose CPUs compute splits, for a trainer that takes rows at once.

    A split takes SPLIT_SECONDS of one CPU, and its rows fit into its queue. A worker computes first
    what is read first, as `PermitQueue` does.
    """

    def __init__(self, workers: int, cpus: int) -> None:
        self.workers, self.cpus = workers, cpus

    def epoch_seconds(self, ahead: ReadAhead) -> float:
        """Return the duration of an epoch."""
        spec = ElementSpec({"x": 0}, (Leaf("x", "dense", "int64", ()),))
        job = types_pb2.Job(num_splits=SPLITS_OF_EPOCH, partitions=P, row_spec=spec.to_json())
        plan = EpochPlan.of_job(job, epoch=0, consumer=0)
        workers, turns = tuple(range(self.workers)), SPLITS_OF_EPOCH // P
        placed: dict[int, int] = {}
        for ordinal in range(turns):
            if plan.key(plan.deal[0][ordinal]) not in placed:
                placed |= place(plan.concurrent_keys(ordinal, self.workers), workers)
        left = dict.fromkeys(range(SPLITS_OF_EPOCH), SPLIT_SECONDS)
        read, seconds = 0, 0.0  # splits of each partition that are read: steps take from all
        while read < turns:
            idle, ticks = dict.fromkeys(workers, self.cpus), 0
            for ordinal in range(read, min(turns, read + 1 + ahead.splits)):
                for split in (splits[ordinal] for splits in plan.deal):
                    worker = placed[plan.key(split)]
                    if left[split] and idle[worker]:
                        idle[worker] -= 1
                        left[split] -= TICK
                        ticks += 1
            seconds += TICK
            while read < turns and not any(left[splits[read]] for splits in plan.deal):
                read += 1
            ahead.has_end = ahead.has_end or read > 0
            ahead.adapt(self.workers * self.cpus, ReadingTime(TICK, TICK, ticks))
        return seconds


@pytest.mark.parametrize(
    ("workers", "cpus"), [(4, 2), (8, 8), (16, 8), (64, 4), (64, 8), (256, 2), (512, 1)]
)
def test_all_cpus_of_up_to_512_are_useful(workers: int, cpus: int) -> None:
    """The first epoch begins with 16 splits, and doubles them in trials of 3 s."""
    fleet, ahead = Fleet(workers, cpus), ReadAhead(most_read_ahead(P), automatic=True, partitions=P)
    ideal = SPLITS_OF_EPOCH * SPLIT_SECONDS / (workers * cpus)
    assert fleet.epoch_seconds(ahead) <= 1.25 * ideal + 2.5 * SPLIT_SECONDS
    assert fleet.epoch_seconds(ahead) <= 1.25 * ideal
    if workers * cpus > 4 * P:
        assert fleet.epoch_seconds(ReadAhead(1)) > 1.8 * ideal
