from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity
from distributed_input.order.mixture import lists_of
from distributed_input.order.share import Share, share_of
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.epoch_steps import EpochSteps
from distributed_input.sidecar.streams.partition_reader import PartitionPosition
from tests.unit.distributed_input.sidecar.steps.readers import GivenTotals
from tests.unit.distributed_input.sidecar.steps.trainers import NoTrainer
from tests.unit.distributed_input.sidecar.system import BATCH, NUMBERS, ROWS, System, running


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("system")) as system:
        system.add_sidecar()
        yield system


class Epoch:
    """One epoch of a job with two partitions and four splits."""

    def __init__(self, system: System, replicas: int = 1, **fields: Any) -> None:
        registry = system.sidecars[0]._registry
        job_input = registry.find("train", "")
        job = job_input.open_job(types_pb2.Job(), b"")
        job.MergeFrom(types_pb2.Job(**fields))
        self.share: Share = share_of(job, 0, 1, replicas)
        self.reader = EpochReader(job_input.row_source(job), self.share, 0, NoTrainer())

    def open(self, position: trainer_pb2.Position | None = None) -> EpochSteps:
        return EpochSteps.open(self.reader, self.share, position)


def take(steps: EpochSteps, rows: int) -> list[int]:
    """Take one batch. Return the numbers of its rows."""
    return [int(row) for block in steps.next(rows) for row in block.buffers[0].view(np.int64)]


def test_all_rows_come_once(system: System) -> None:
    epoch = Epoch(system)
    steps = epoch.open()
    batches = [take(steps, BATCH) for _ in range(ROWS // BATCH)]
    assert [len(batch) for batch in batches] == [BATCH] * (ROWS // BATCH)
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(ROWS))
    assert take(steps, BATCH) == []
    epoch.reader.close()


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, ROWS // BATCH))
def test_a_restored_position_skips_no_row(system: System, done: int) -> None:
    before, after = Epoch(system), Epoch(system)
    steps = before.open()
    found = []
    for _ in range(done):
        found += take(steps, BATCH)
        steps.done += 1
    position = steps.state()
    identity.stamp(position, before.reader.source.job)
    assert (position.step, position.epoch, position.job) == (done, 0, "train")
    resumed = after.open(position)
    again = resumed.state()
    assert (again.step, again.base_step, sum(again.base_rows)) == (done, done, done * BATCH)
    while batch := take(resumed, BATCH):
        found += batch
    assert sorted(found) == list(range(ROWS))
    before.reader.close()
    after.reader.close()


def test_no_block_crosses_the_border_of_a_unit(system: System) -> None:
    epoch = Epoch(system, replicas=BATCH)  # units of one row, turns of two
    unit_rows = epoch.share.unit_rows
    assert unit_rows < epoch.share.quota
    taken = 0
    for block in epoch.open().next(ROWS):
        assert taken // unit_rows == (taken + block.rows - 1) // unit_rows
        taken += block.rows
    assert taken == ROWS
    epoch.reader.close()


@pytest.mark.parametrize(
    "at",
    [
        PartitionPosition(0, 0, 6, None, ended=False),
        PartitionPosition(0, 0, 0, Prefix(0, 0), ended=False),
        PartitionPosition(2, 20, 20, Prefix(6, 99), ended=True),
    ],
    ids=["unknown", "no rows", "ended"],
)
def test_a_position_has_only_prefixes_that_can_be_checked(
    system: System, monkeypatch: pytest.MonkeyPatch, at: PartitionPosition
) -> None:
    epoch = Epoch(system)
    steps = epoch.open()
    monkeypatch.setattr(epoch.reader, "positions", lambda: {0: at})
    position = steps.state(3)
    assert not position.prefixes
    first = trainer_pb2.Anchor(ordinal=at.ordinal, rows=at.before, ended=at.ended)
    assert list(position.anchors) == [first, trainer_pb2.Anchor()]
    assert (position.extra_units, position.base_step) == (3, 0)
    assert not position.base_rows
    epoch.reader.close()


@pytest.mark.parametrize("anchor", [None, Prefix(4, 44)])
def test_a_position_has_the_anchors_of_its_prefixes(
    system: System, monkeypatch: pytest.MonkeyPatch, anchor: Prefix | None
) -> None:
    epoch = Epoch(system)
    steps = epoch.open()
    at = PartitionPosition(0, 0, 6, Prefix(6, 99, anchor))
    monkeypatch.setattr(epoch.reader, "positions", lambda: {0: at})
    (found,) = steps.state().prefixes
    assert (found.rows, found.digest) == (6, 99)
    assert (found.anchor_rows, found.anchor_digest) == ((4, 44) if anchor else (0, 0))
    epoch.reader.close()


# With the rows that the test gives.


class GivenTakes(GivenTotals):
    """A reader whose calls of `take` return these numbers of rows. `requests` are the calls."""

    def __init__(self, job: types_pb2.Job, counts: list[int], ended: int | None = None) -> None:
        super().__init__(job, {})
        self.columns = NUMBERS.columns
        self.partitions = {p: SimpleNamespace(ended=p == ended) for p in range(job.partitions)}
        self.requests: list[tuple[int, int]] = []
        self._counts = counts

    def take(self, partition: int, rows: int) -> list[RowBlock]:
        """Return the next rows."""
        self.requests.append((partition, rows))
        count = self._counts.pop(0)
        data = np.zeros(8 * count, np.uint8)
        return [RowBlock(0, count, (data,), np.zeros(count, np.uint64))] if count else []


def steps_of(reader: GivenTakes, replicas: int = 2) -> EpochSteps:
    any_reader: Any = reader
    share = share_of(reader.job, 0, 1, replicas)
    return EpochSteps(any_reader, share, 0, [0] * reader.job.partitions)


def given_job(**fields: Any) -> types_pb2.Job:
    return types_pb2.Job(partitions=2, global_batch_size=8, num_splits=2, **fields)


def test_a_turn_ends_with_its_rows_or_with_its_partition() -> None:
    reader = GivenTakes(given_job(), [1, 3, 2, 0, 2])
    assert [block.rows for block in steps_of(reader).next(8)] == [1, 3, 2, 2]
    assert reader.requests == [(0, 4), (0, 3), (1, 4), (1, 2), (0, 2)]


def test_a_partition_that_has_ended_gets_no_turn() -> None:
    reader = GivenTakes(given_job(), [4, 4], ended=0)
    assert sum(block.rows for block in steps_of(reader).next(8)) == 8
    assert reader.requests == [(1, 4), (1, 4)]


def test_no_more_rows_are_taken_than_fit_into_a_unit() -> None:
    reader = GivenTakes(given_job(), [2, 2, 2, 2])
    assert sum(block.rows for block in steps_of(reader, replicas=4).next(8)) == 8
    assert reader.requests == [(0, 2), (0, 2), (1, 2), (1, 2)]
    reader = GivenTakes(given_job(), [1, 1, 2, 2, 2])
    assert sum(block.rows for block in steps_of(reader, replicas=4).next(8)) == 8
    assert reader.requests == [(0, 2), (0, 1), (0, 2), (1, 2), (1, 2)]


class GivenMixture(GivenTakes):
    """A reader of a mixture. `left` are the lists that are read no more."""

    def __init__(self, job: types_pb2.Job, counts: list[int]) -> None:
        super().__init__(job, counts)
        self.left: list[int] = []

    def positions(self) -> dict[int, PartitionPosition]:
        """Return the start of each list."""
        return {one: PartitionPosition() for one in range(lists_of(self.job))}

    def leave(self, partition: int, at: PartitionPosition) -> None:
        """Add the list."""
        self.left.append(partition)


def test_a_source_that_is_left_out_is_logged_with_its_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sources = [types_pb2.Job(num_splits=2) for _ in range(2)]
    for source, name in zip(sources, ("books", "web"), strict=True):
        source.entry_point.source = name
    weights = [types_pb2.Weights(weights=[1, 1])]
    drop = types_pb2.DROP_SOURCE
    reader: Any = GivenMixture(
        given_job(sources=sources, weights=weights, exhaustion=drop), [2, 2, 2, 2, 2, 1, 0, 2, 2]
    )
    steps = EpochSteps(reader, share_of(reader.job, 0, 1, 2), 0, [0] * 4)
    assert sum(block.rows for block in steps.next(8)) == 8
    assert not steps.ended_sources()
    steps.done += 1
    assert sum(block.rows for block in steps.next(8)) == 7
    assert steps.ended_sources() == {1}
    assert steps.leave_out({1})
    assert reader.left == [2, 3]
    (record,) = [one for one in caplog.records if one.levelname == "WARNING"]
    fields = {"source": "web", "partitions": [0], "delivered_rows": 4, "epoch": 0, "step": 1}
    assert vars(record)["fields"] == fields
