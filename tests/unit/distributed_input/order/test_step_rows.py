"""The rows of a step, computed from positions, compared with a delivery that is counted by row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity, splits
from distributed_input.order.share import seed_of, share_of
from distributed_input.order.step_rows import (
    RowRange,
    UnknownLengthError,
    rows_of_step,
    step_of_row,
)

Row = tuple[int, int]  # split, index
Steps = list[list[list[Row]]]  # by step and consumer
PARALLEL = types_pb2.PARALLEL_EPOCHS
KEEP = types_pb2.KEEP


@dataclass(frozen=True)
class Case:
    job: types_pb2.Job
    lengths: dict[int, int]
    epoch: int

    def dealt(self, consumer: int = 0) -> list[list[int]]:
        seed = seed_of(self.job, consumer)
        return splits.deal(seed, self.epoch, self.job.num_splits, self.job.partitions)


@st.composite
def cases(draw: st.DrawFn, mode: types_pb2.ProcessingMode = types_pb2.DISTRIBUTED_EPOCH) -> Case:
    partitions, num_splits = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(1, 24))
    job = types_pb2.Job(
        name="input",
        seed=draw(st.integers(0, 99)),
        mode=mode,
        num_splits=num_splits,
        partitions=partitions,
        global_batch_size=partitions * draw(st.integers(1, 3)),
    )
    lengths = st.lists(st.integers(0, 9), min_size=num_splits, max_size=num_splits)
    return Case(job, dict(enumerate(draw(lengths))), draw(st.integers(0, 2)))


class Delivery:
    """The rows that consumers take, row by row, and the positions between."""

    def __init__(self, case: Case, consumers: int) -> None:
        self.case, self.consumers = case, consumers
        dealt = case.dealt()
        self.rows = {
            p: [(split, row) for split in own for row in range(case.lengths[split])]
            for p, own in enumerate(dealt)
        }
        self.at = dict.fromkeys(self.rows, 0)
        self.base_step, self.base_rows = 0, [0] * len(dealt)
        self.steps: Steps = []

    def step(self) -> bool:
        """Take one step. Return whether any consumer has rows."""
        taken = []
        for consumer in range(self.consumers):
            share = share_of(self.case.job, consumer, self.consumers)
            own = [p for p in share.partitions if self.at[p] < len(self.rows[p])]
            batch: list[Row] = []
            while own and len(batch) < share.batch:
                for p in list(own):
                    wanted = min(share.quota, share.batch - len(batch))
                    got = self.rows[p][self.at[p] : self.at[p] + wanted]
                    batch += got
                    self.at[p] += len(got)
                    if len(got) < wanted:
                        own.remove(p)
            taken.append(batch)
        self.steps.append(taken)
        return any(taken)

    def restart(self, consumers: int) -> None:
        self.consumers, self.base_step = consumers, len(self.steps)
        self.base_rows = list(self.at.values())

    def position(self, consumer: int) -> trainer_pb2.Position:
        """Return what a consumer saves: its own borders are exact, and of others it has none."""
        job, dealt = self.case.job, self.case.dealt()
        own = splits.partitions_of(consumer, self.consumers, job.partitions)
        anchors, prefixes = [], []
        for p, ids in enumerate(dealt):
            ordinal = before = 0
            while p in own and ordinal < len(ids):
                if before + self.case.lengths[ids[ordinal]] > self.at[p]:
                    break
                before += self.case.lengths[ids[ordinal]]
                ordinal += 1
            ended = p in own and ordinal == len(ids)
            anchors.append(trainer_pb2.Anchor(ordinal=ordinal, rows=before, ended=ended))
            if p in own and not ended and self.at[p] > before:
                rows = self.at[p] - before
                prefixes.append(trainer_pb2.Prefix(partition=p, split=ids[ordinal], rows=rows))
        position = trainer_pb2.Position(
            job=job.name,
            epoch=self.case.epoch,
            step=len(self.steps),
            consumers=self.consumers,
            consumer=consumer,
            base_step=self.base_step,
            base_rows=self.base_rows if any(self.base_rows) else None,
            anchors=anchors,
            prefixes=prefixes,
            partitions=job.partitions,
            global_batch_size=job.global_batch_size,
            seed=job.seed,
        )
        identity.stamp(position, job)
        return position


def rows_of(ranges: list[RowRange]) -> list[Row]:
    return [(one.split, one.first_row + n) for one in ranges for n in range(one.rows)]


def ask(
    position: trainer_pb2.Position, step: int, lengths: dict[int, int], consumer: int | None = None
) -> tuple[list[Row], list[int]]:
    """Return the rows of a step, and the splits whose lengths were needed."""
    known: dict[int, int] = {}
    while True:
        try:
            return rows_of(rows_of_step(position, step, known, KEEP, consumer)), list(known)
        except UnknownLengthError as error:
            if error.split in known:
                raise
            known[error.split] = lengths[error.split]


def consumers_of(case: Case) -> st.SearchStrategy[int]:
    return st.sampled_from(splits.divisors(case.job.partitions))


@settings(max_examples=50)
@given(st.data())
def test_the_rows_are_those_that_were_delivered(data: st.DataObject) -> None:
    """For each step and trainer since the last restart, with the lengths that are asked for."""
    case = data.draw(cases())
    run = Delivery(case, data.draw(consumers_of(case)))
    for _ in range(data.draw(st.integers(0, 2))):
        for _ in range(data.draw(st.integers(0, 6))):
            run.step()
        run.restart(data.draw(consumers_of(case)))
    for _ in range(data.draw(st.integers(0, 6))):
        run.step()
    position = run.position(data.draw(st.integers(0, run.consumers - 1)))
    while run.step():
        pass
    for step in range(position.base_step, len(run.steps)):
        of = run.steps[step]
        for consumer in range(run.consumers):
            assert ask(position, step, case.lengths, consumer)[0] == of[consumer]
        assert ask(position, step, case.lengths)[0] == list(chain(*of))


@settings(max_examples=50)
@given(st.data())
def test_a_row_is_in_the_step_that_has_it(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = Delivery(case, data.draw(consumers_of(case)))
    if data.draw(st.booleans()):
        for _ in range(data.draw(st.integers(1, 6))):
            run.step()
        run.restart(data.draw(consumers_of(case)))
    position = run.position(data.draw(st.integers(0, run.consumers - 1)))
    while run.step():
        pass
    remainder = data.draw(st.sampled_from([KEEP, types_pb2.DROP, types_pb2.PAD]))
    for step, delivered in enumerate(run.steps):
        for split, row in chain(*delivered):
            try:
                shown = rows_of(rows_of_step(position, step, case.lengths, remainder))
            except PositionError:
                with pytest.raises(PositionError, match="is before a restore"):
                    step_of_row(position, split, row, case.lengths, remainder)
                continue
            expected = step if shown else None
            assert step_of_row(position, split, row, case.lengths, remainder) == expected


def test_a_row_before_a_restart_of_a_partition_that_gave_more_is_an_error() -> None:
    """After the other partition has ended, its rows divided by those of a step are no step."""
    job = types_pb2.Job(name="input", num_splits=2, partitions=2, global_batch_size=2)
    case = Case(job, {0: 9, 1: 9}, 0)
    (short,), (long,) = case.dealt()
    run = Delivery(Case(job, {short: 1, long: 9}, 0), 1)
    for _ in range(3):
        run.step()
    run.restart(2)
    assert run.base_rows == [1, 5]
    with pytest.raises(PositionError, match="is before a restore"):
        step_of_row(run.position(1), long, 4, run.case.lengths, KEEP)
    assert step_of_row(run.position(1), long, 5, run.case.lengths, KEEP) == 3


@settings(max_examples=50)
@given(st.data())
def test_a_step_before_a_restart_is_known_while_the_number_of_trainers_does_not_matter(
    data: st.DataObject,
) -> None:
    case = data.draw(cases())
    run = Delivery(case, data.draw(consumers_of(case)))
    for _ in range(data.draw(st.integers(1, 6))):
        run.step()
    run.restart(data.draw(consumers_of(case)))
    position, share = run.position(0), share_of(case.job, 0, run.consumers)
    if any(run.at[p] < run.base_step * share.quota for p in run.at):  # one has ended
        with pytest.raises(PositionError, match="Use a checkpoint from before the restore"):
            rows_of_step(position, 0, case.lengths, KEEP)
        return
    for step, delivered in enumerate(run.steps):
        assert sorted(ask(position, step, case.lengths)[0]) == sorted(chain(*delivered))
        with pytest.raises(PositionError, match="Ask for the rows of all trainers"):
            rows_of_step(position, step, case.lengths, KEEP, 0)


@given(st.data())
def test_with_drop_all_trainers_end_at_the_first_step_that_is_not_full(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = Delivery(case, data.draw(consumers_of(case)))
    position = run.position(0)
    while run.step():
        pass
    has_ended = False
    batch = case.job.global_batch_size // run.consumers
    for step, delivered in enumerate(run.steps):
        has_ended = has_ended or any(len(rows) < batch for rows in delivered)
        found = rows_of_step(position, step, case.lengths, types_pb2.DROP)
        assert rows_of(found) == ([] if has_ended else list(chain(*delivered)))


def test_in_parallel_epochs_a_position_shows_its_own_trainer() -> None:
    job = types_pb2.Job(
        name="input", mode=PARALLEL, num_splits=4, partitions=2, global_batch_size=4, seed=1
    )
    case = Case(job, dict.fromkeys(range(4), 3), 0)
    position = trainer_pb2.Position(
        job="input", consumers=2, consumer=1, partitions=2, global_batch_size=4, seed=1
    )
    identity.stamp(position, job)
    first, second = (own[0] for own in case.dealt(consumer=1))
    assert rows_of_step(position, 0, case.lengths, KEEP) == [(first, 0, 1), (second, 0, 1)]
    assert [step_of_row(position, one, 2, case.lengths, KEEP) for one in (first, second)] == [2, 2]
    with pytest.raises(PositionError, match="each trainer has its own order"):
        rows_of_step(position, 0, case.lengths, KEEP, 0)


def test_only_the_splits_around_a_step_are_requested() -> None:
    """From the nearer border, which the checkpoint has for the partition that it reads."""
    job = types_pb2.Job(name="input", num_splits=100, partitions=1, global_batch_size=5)
    run = Delivery(Case(job, dict.fromkeys(range(100), 10), 0), 1)
    for _ in range(100):
        run.step()
    position, (order,) = run.position(0), run.case.dealt()
    for step, needed in ((99, [49]), (96, [49, 48]), (3, [0, 1]), (101, [50])):
        rows, asked = ask(position, step, run.case.lengths)
        assert [split for split, _ in rows] == [order[step // 2]] * 5
        assert [order.index(split) for split in asked] == needed


def test_lengths_that_contradict_the_checkpoint_are_an_error() -> None:
    job = types_pb2.Job(name="input", num_splits=4, partitions=1, global_batch_size=2)
    run = Delivery(Case(job, dict.fromkeys(range(4), 4), 0), 1)
    for _ in range(5):
        run.step()
    position = run.position(0)
    with pytest.raises(PositionError, match="the dataset has changed"):
        rows_of_step(position, 0, dict.fromkeys(range(4), 5), KEEP)
    position.partitions = 3
    with pytest.raises(PositionError, match="damaged"):
        rows_of_step(position, 0, {}, KEEP)
    with pytest.raises(PositionError, match="before the input was read"):
        rows_of_step(trainer_pb2.Position(format=identity.FORMAT), 0, {}, KEEP)
    with pytest.raises(PositionError, match="format 0"):
        rows_of_step(trainer_pb2.Position(), 0, {}, KEEP)
    with pytest.raises(PositionError, match="steps count from 0"):
        rows_of_step(run.position(0), -1, {}, KEEP)


@pytest.mark.parametrize("length", [9, 1])
def test_a_split_of_a_wrong_length_beside_a_known_border_is_an_error(length: int) -> None:
    """Its end would be behind the border that the checkpoint has, or before rows that were read."""
    job = types_pb2.Job(name="input", num_splits=4, partitions=1, global_batch_size=2)
    run = Delivery(Case(job, dict.fromkeys(range(4), 4), 0), 1)
    for _ in range(5):
        run.step()
    position, (order,) = run.position(0), run.case.dealt()  # two splits, and 2 rows of the third
    wrong = order[0] if length == 9 else order[2]
    with pytest.raises(PositionError, match="the dataset has changed"):
        rows_of_step(position, 0, {wrong: length}, KEEP)


def test_a_job_without_a_batch_size_has_no_steps_that_a_loop_counts() -> None:
    job = types_pb2.Job(name="input", num_splits=4, partitions=2)
    position = Delivery(Case(job, dict.fromkeys(range(4), 4), 0), 1).position(0)
    with pytest.raises(PositionError, match="no batch size"):
        rows_of_step(position, 0, dict.fromkeys(range(4), 4), KEEP)
