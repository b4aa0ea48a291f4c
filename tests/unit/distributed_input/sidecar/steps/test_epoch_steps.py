from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.assignment.share import Share, share_of
from distributed_input.rows.prefix import UNKNOWN_VERSION, Prefix
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.epoch_steps import EpochSteps
from distributed_input.sidecar.streams.partition_reader import PartitionPosition
from tests.unit.distributed_input.sidecar.steps.trainers import NoTrainer
from tests.unit.distributed_input.sidecar.system import BATCH, ROWS, System, running


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
    return [int(row) for block in steps.batch(rows) for row in block.buffers[0].view(np.int64)]


@pytest.mark.parametrize("order", [types_pb2.STRICT, types_pb2.ANY])
def test_all_rows_come_once(system: System, order: types_pb2.Order) -> None:
    epoch = Epoch(system, order=order)
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
    position = steps.position()
    assert (position.step, position.epoch, position.job) == (done, 0, "train")
    resumed = after.open(position)
    while batch := take(resumed, BATCH):
        found += batch
    assert sorted(found) == list(range(ROWS))
    before.reader.close()
    after.reader.close()


@pytest.mark.parametrize(
    ("version", "old", "new"), [(1, [6], []), (2, [], [6]), (UNKNOWN_VERSION, [], [])]
)
def test_a_position_keeps_the_versions_of_digests_apart(
    system: System, monkeypatch: pytest.MonkeyPatch, version: int, old: list[int], new: list[int]
) -> None:
    """An older sidecar restores only prefixes that it can compare."""
    epoch = Epoch(system)
    steps = epoch.open()
    at = PartitionPosition(0, 0, 6, Prefix(6, 99, version), ended=False)
    monkeypatch.setattr(epoch.reader, "positions", lambda: {0: at})
    position = steps.position()
    assert [one.rows for one in position.prefixes] == old
    assert [one.rows for one in position.prefixes_v2] == new
    epoch.reader.close()


def test_no_block_crosses_the_border_of_a_unit(system: System) -> None:
    epoch = Epoch(system, replicas=BATCH)  # units of one row, turns of two
    unit_rows = epoch.share.unit_rows
    assert unit_rows < epoch.share.quota
    taken = 0
    for block in epoch.open().batch(ROWS):
        assert taken // unit_rows == (taken + block.rows - 1) // unit_rows
        taken += block.rows
    assert taken == ROWS
    epoch.reader.close()
