"""The rows of a step of a mixture, compared with a delivery that is counted by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import PositionError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity, mixed_rows, mixture, splits
from distributed_input.order.mixture import Mixer
from distributed_input.order.share import share_of
from distributed_input.order.step_rows import (
    UnknownLengthError,
    rows_of_step,
    splits_of,
    step_of_row,
)

Row = tuple[int, int]  # number of the split, index
KEEP = types_pb2.KEEP


def job_of(partitions: int, each: int, sources: list[int], exhaustion: Any) -> types_pb2.Job:
    jobs = [
        types_pb2.Job(entry_point=types_pb2.EntryPoint(source=f"s{at}"), num_splits=number)
        for at, number in enumerate(sources)
    ]
    return types_pb2.Job(
        name="train",
        seed=3,
        partitions=partitions,
        global_batch_size=partitions * each,
        num_splits=sum(sources),
        sources=jobs,
        exhaustion=exhaustion,
        weights=[types_pb2.Weights(weights=range(1, 1 + len(sources)))],
    )


def length(number: int) -> int:
    """Return the rows of a split, which differ from round to round."""
    return 1 + mix(number) % 4


@dataclass
class Delivery:
    """The rows that consumers take, row by row, and the positions between."""

    job: types_pb2.Job
    consumers: int = 1
    epoch: int = 1
    since: int = 0
    steps: list[list[list[Row]]] = field(default_factory=list)  # by step and consumer

    def __post_init__(self) -> None:
        self.log = list(self.job.weights)
        self.lists = mixture.deal(self.job, self.epoch)
        self.left: list[list[Row]] = [[] for _ in self.lists]
        self.opened = [0] * len(self.lists)  # splits of each list
        self.at = np.zeros(len(self.lists), np.int64)

    def step(self) -> bool:
        """Take a step of all consumers. Return False if the epoch has ended."""
        takes = Mixer(self.job, self.log).takes(len(self.steps))
        for one, rows in enumerate(takes):
            while len(self.left[one]) < rows:
                if self.opened[one] == len(self.lists[one]):
                    return False
                split = self.lists[one][self.opened[one]]
                self.left[one] += [(split, row) for row in range(length(split))]
                self.opened[one] += 1
        taken = []
        for consumer in range(self.consumers):
            batch = []
            for one in range(consumer, self.job.partitions, self.consumers):
                for at in range(one, len(self.lists), self.job.partitions):
                    batch += [self.left[at].pop(0) for _ in range(takes[at])]
            taken.append(batch)
        self.steps.append(taken)
        self.at = self.at + takes
        return True

    def restart(self, consumers: int) -> None:
        self.consumers, self.since = consumers, len(self.steps)

    def set_weights(self, weights: tuple[int, ...]) -> None:
        now = types_pb2.Weights(step=len(self.steps), weights=weights)
        self.log = [one for one in self.log if one.step < now.step] + [now]
        self.since = now.step

    def position(self, consumer: int) -> trainer_pb2.Position:
        """Return the position of a consumer, which knows the rows of its open splits."""
        own = share_of(self.job, consumer, self.consumers).partitions
        anchors, prefixes = [], []
        for one in range(len(self.lists)):
            row = self._next(one) if one in own else None
            if row is None:
                anchors.append(trainer_pb2.Anchor())
                continue
            ordinal = next(at for at in range(10**6) if self.lists[one][at] == row[0])
            anchors.append(trainer_pb2.Anchor(ordinal=ordinal, rows=self.at[one] - row[1]))
            if row[1]:
                split = row[0] & 0xFFFFFFFF
                prefixes.append(trainer_pb2.Prefix(partition=one, split=split, rows=row[1]))
        position = trainer_pb2.Position(
            job="train",
            epoch=self.epoch,
            step=len(self.steps),
            base_step=len(self.steps),
            base_rows=self.at.tolist(),
            consumers=self.consumers,
            consumer=consumer,
            partitions=self.job.partitions,
            global_batch_size=self.job.global_batch_size,
            seed=self.job.seed,
            anchors=anchors,
            prefixes=prefixes,
            weights=mixture.log_from(len(self.steps), self.log),
            trainers_since=self.since,
        )
        identity.stamp(position, self.job)
        return position

    def _next(self, one: int) -> Row | None:
        if self.left[one]:
            return self.left[one][0]
        ordinal = self.opened[one]
        return (self.lists[one][ordinal], 0) if ordinal < len(self.lists[one]) else None


def ask(position: trainer_pb2.Position, step: int, consumer: int | None = None) -> list[Row]:
    """Return the rows of a step, with the lengths that are asked for."""
    known: dict[int, int] = {}
    while True:
        try:
            found = rows_of_step(position, step, known, KEEP, consumer)
        except UnknownLengthError as error:
            if error.split in known:
                raise
            known[error.split] = length(error.split)
        else:
            return [(one.split, one.first_row + n) for one in found for n in range(one.rows)]


@st.composite
def jobs(draw: st.DrawFn, exhaustion: Any = None) -> types_pb2.Job:
    partitions = draw(st.sampled_from([1, 2, 4]))
    sources = draw(st.lists(st.integers(partitions, 3 * partitions), min_size=1, max_size=3))
    if exhaustion is None:
        exhaustion = draw(st.sampled_from([types_pb2.REPEAT, types_pb2.STOP]))
    return job_of(partitions, draw(st.integers(1, 3)), sources, exhaustion)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_rows_are_those_that_were_delivered(data: st.DataObject) -> None:
    """For each step and trainer since the last change, from a position before or behind them."""
    job = data.draw(jobs())
    consumers = st.sampled_from(splits.divisors(job.partitions))
    run = Delivery(job, data.draw(consumers))
    for _ in range(data.draw(st.integers(0, 6))):
        run.step()
    if data.draw(st.booleans()):
        run.set_weights(tuple(data.draw(st.permutations(range(len(job.sources)))) or (1,)))
        if not any(run.log[-1].weights):
            run.log[-1].weights[0] = 1
    run.restart(data.draw(consumers))
    for _ in range(data.draw(st.integers(0, 6))):
        run.step()
    position = run.position(data.draw(st.integers(0, run.consumers - 1)))
    for _ in range(6):
        run.step()
    first = position.weights[0].step
    for step, delivered in enumerate(run.steps):
        if step < first:
            with pytest.raises(PositionError, match=f"before step {first}, at which the weights"):
                ask(position, step)
            continue
        if step >= run.since:
            for consumer, rows in enumerate(delivered):
                assert ask(position, step, consumer) == rows
        assert sorted(ask(position, step)) == sorted(row for rows in delivered for row in rows)


@settings(max_examples=30, deadline=None)
@given(jobs(types_pb2.STOP), st.integers(0, 4))
def test_an_epoch_stops_with_the_last_step_that_all_lists_have(
    job: types_pb2.Job, steps: int
) -> None:
    run = Delivery(job)
    for _ in range(steps):
        run.step()
    position = run.position(0)
    while run.step():
        pass
    assert ask(position, len(run.steps)) == []
    assert ask(position, len(run.steps) + 9) == []
    if run.steps:
        assert ask(position, len(run.steps) - 1)


@settings(max_examples=30, deadline=None)
@given(jobs(), st.integers(1, 12))
def test_a_row_is_in_the_step_that_has_it(job: types_pb2.Job, steps: int) -> None:
    run = Delivery(job)
    for _ in range(steps):
        run.step()
    position = run.position(0)
    if job.exhaustion == types_pb2.STOP:
        while run.step():
            pass
    lengths: dict[int, int] = {}
    for split in chain(*splits_of(position, lengths)):
        assert split not in lengths
        lengths[split] = length(split)
    expected = {row: at for at, step in enumerate(run.steps) for rows in step for row in rows}
    found = {
        (split, row): step_of_row(position, split, row, lengths, KEEP)
        for split, rows in lengths.items()
        for row in range(rows)
    }
    assert {row: step for row, step in found.items() if step is not None} == expected


def test_steps_that_were_delivered_need_no_lengths_of_other_trainers() -> None:
    run = Delivery(job_of(2, 2, [40, 40], types_pb2.STOP), 2)
    for _ in range(9):
        run.step()
    position = run.position(1)
    known: dict[int, int] = {}
    own = [split for one in (1, 3) for split in run.lists[one]]
    while True:
        try:
            rows_of_step(position, 7, known, KEEP, 1)
            break
        except UnknownLengthError as error:
            known[error.split] = length(error.split)
    assert set(known) <= set(own)


def test_a_known_end_of_a_list_ends_the_epoch_without_the_lengths_of_others() -> None:
    run = Delivery(job_of(2, 2, [4, 40], types_pb2.STOP), 2)
    while run.step():
        pass
    position = run.position(0)
    position.anchors[1].CopyFrom(trainer_pb2.Anchor(ordinal=2, rows=run.at[1], ended=True))
    assert rows_of_step(position, len(run.steps) + 9, {}, KEEP) == []


def test_steps_behind_a_position_are_not_known_if_a_source_may_end_before_them() -> None:
    run = Delivery(job_of(2, 2, [40, 40], types_pb2.DROP_SOURCE), 2)
    for _ in range(5):
        run.step()
    position = run.position(0)
    assert sorted(ask(position, 4)) == sorted(row for rows in run.steps[4] for row in rows)
    with pytest.raises(PositionError, match=r"step 5 is behind the position.*onExhausted: Drop"):
        ask(position, 5)
    assert {
        step_of_row(position, s, r, dict.fromkeys(range(80), 9), KEEP)
        for s in range(3)
        for r in range(9)
    } <= {None, *range(5)}


def test_only_splits_of_steps_before_the_position_are_searched() -> None:
    run = Delivery(job_of(1, 3, [2, 2], types_pb2.REPEAT))
    for _ in range(4):
        run.step()
    position = run.position(0)

    def search(rows: int) -> list[int]:
        lengths: dict[int, int] = {}
        for split in chain(*splits_of(position, lengths)):
            lengths[split] = rows
        return sorted(lengths)

    # 4 of 12 rows are of the first source, with 1 row in each split.
    assert [split for split in search(1) if split % 4 < 2] == [0, 1, 4, 5]
    with pytest.raises(PositionError, match="the dataset has changed"):
        search(0)


def changed() -> Delivery:
    """Return a delivery in the 5th step of other weights."""
    run = Delivery(job_of(2, 2, [4, 4], types_pb2.REPEAT), 2)
    for _ in range(7):
        run.step()
    run.set_weights((3, 1))
    for _ in range(5):
        run.step()
    return run


def test_the_step_of_a_row_before_the_weights_changed_is_not_known() -> None:
    run = changed()
    position, lengths = run.position(1), {one: length(one) for one in range(200)}
    with pytest.raises(PositionError, match="the step of the row is before step 7"):
        step_of_row(position, *run.steps[6][0][0], lengths, KEEP)
    assert step_of_row(position, *run.steps[7][0][0], lengths, KEEP) == 7


def test_one_trainer_of_a_step_before_a_restore_is_an_error() -> None:
    run = Delivery(job_of(2, 2, [4, 4], types_pb2.REPEAT), 2)
    for steps in (3, 2):
        for _ in range(steps):
            run.step()
        run.restart(1)
    position = run.position(0)
    assert sorted(ask(position, 1)) == sorted(row for rows in run.steps[1] for row in rows)
    with pytest.raises(PositionError, match=r"step 1 is before a restore.*at step 5"):
        ask(position, 1, 0)
    with pytest.raises(PositionError, match="trainer 1: there were 1 trainers"):
        ask(position, 5, 1)


def test_positions_that_contradict_themselves_are_errors() -> None:
    run = changed()
    for fields, message in (
        ({"num_splits": 9}, "its sources have other splits"),
        ({"partitions": 8}, "its sources have other splits"),
        ({"base_rows": [1] + [0] * 3}, "do not fit the borders"),
        ({"weights": []}, "has no weights"),
        ({"trainers_since": 99}, "damaged"),
    ):
        position = run.position(0)
        for name, value in fields.items():
            if isinstance(value, list):
                position.ClearField(name)
                getattr(position, name).extend(value)
            else:
                setattr(position, name, value)
        with pytest.raises(PositionError, match=message):
            ask(position, 8)
    run = Delivery(run.job)
    run.step()
    position = run.position(0)
    position.base_rows[0] += 1
    with pytest.raises(PositionError, match="do not fit the borders"):
        ask(position, 0)
    with pytest.raises(PositionError, match="takes too long"):
        ask(run.position(0), 10**15)


def test_a_list_that_has_no_rows_any_more_is_an_error() -> None:
    position = Delivery(job_of(1, 2, [3, 3], types_pb2.REPEAT)).position(0)

    def find(empty: bool) -> None:
        known: dict[int, int] = {}
        for _ in range(6 if empty else 200):
            try:
                rows_of_step(position, 4, known, KEEP)
                return
            except UnknownLengthError as error:
                # The last split of a round and the first one of the next may be the same.
                known[error.split] = int(not empty and error.split % 6 in (0, 3))
        raise AssertionError("it has no end")

    find(False)
    with pytest.raises(PositionError, match="the dataset has changed"):
        find(True)


def test_far_steps_are_found_from_the_rows_of_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Delivery(job_of(2, 1, [2, 2], types_pb2.REPEAT))
    for _ in range(30):
        run.step()
    monkeypatch.setattr(mixed_rows, "_GRID", 4)
    mixed_rows.mixed_epoch.cache_clear()
    for position in (run.position(0), Delivery(run.job).position(0)):
        for step in (29, 3, 4, 0, 17):
            assert ask(position, step) == run.steps[step][0]
