from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import grpc
import pytest

from distributed_input.api.config import DatasetConfig, DeliveryConfig, InputConfig
from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.sidecar.inputs import job_input
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from tests.unit.distributed_input.dispatcher.builders import without_run
from tests.unit.distributed_input.sidecar.system import NUMBERS, System, eventually, running

MIB = 1 << 20
NO_DATASET: dict[str, Any] = {"dataset": {}}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


def test_a_worker_completes_the_job_of_an_entry_point(system: System) -> None:
    job = system.add_sidecar().open_job(types_pb2.Job(global_batch_size=8), b"")
    assert (job.name, job.global_batch_size, job.row_spec) == ("train", 8, NUMBERS.to_json())
    entry = system.state.jobs.entry("train")
    assert entry is not None
    assert entry.job == job


def test_another_run_drops_the_facts_of_the_one_before(system: System) -> None:
    own = system.add_sidecar()
    run = own.open_job(types_pb2.Job(), b"").run
    own.sessions._facts = [dispatcher_pb2.PartitionFact()]
    own.open_job(types_pb2.Job(run=run), b"")
    assert own.sessions.facts()
    own.open_job(types_pb2.Job(), b"")
    assert not own.sessions.facts()
    own.sessions._facts = [dispatcher_pb2.PartitionFact()]
    entry = system.state.jobs.entry("train")
    assert entry is not None
    eventually(lambda: entry.consumers.live(system.clock.now()))  # it can release the job now
    own.open_job(types_pb2.Job(global_batch_size=8), b"")
    assert not own.sessions.facts()


def test_a_dataset_of_the_trainer_is_registered_with_its_id(system: System) -> None:
    own = system.add_sidecar(**NO_DATASET)
    draft = types_pb2.Job(name="train", dataset_id=hashlib.sha256(b"graph").hexdigest())
    draft.partitions = draft.num_splits = 2
    assert without_run(own.open_job(draft, b"graph")) == draft
    assert system.state.datasets.has(draft.dataset_id)


def wide_job(row_bytes: int) -> types_pb2.Job:
    row = ElementSpec({"x": 0}, (Leaf("x", "dense", "uint8", (row_bytes,)),))
    return types_pb2.Job(name="train", partitions=8, num_splits=16, row_spec=row.to_json())


@pytest.mark.parametrize(
    ("row_bytes", "available", "read_ahead", "queue_bytes"),
    [
        (100, None, 3, 2 * MIB),
        (16 * MIB, None, 3, 2 * MIB),
        (100, 512 * MIB, 3, 2 * MIB),
        (100, 256 * MIB, 2, 1864135),
        (100, 129 * MIB, 0, 43690),
        (8 * MIB, 512 * MIB, 1, 2 * MIB),
        (16 * MIB, 512 * MIB, 0, 2 * MIB),
    ],
)
def test_a_low_memory_limit_opens_fewer_splits_ahead(
    system: System, row_bytes: int, available: int | None, read_ahead: int, queue_bytes: int
) -> None:
    own = system.add_sidecar(sidecar={"bufferBytes": 1 << 20, "readAhead": 3})
    own._available_bytes = available
    source = own.row_source(wide_job(row_bytes))
    ahead = source.read_ahead
    assert (ahead.splits, ahead.most) == (read_ahead, read_ahead)
    assert source.queue_bytes(1000) == queue_bytes
    assert source.useful.number == min(16, 8 * (1 + read_ahead))
    assert 8 * source.most_head_bytes <= (available or 1 << 62)
    ahead.only_heads_help = True
    assert source.useful.number == min(16, 8 * (1 + read_ahead))
    assert "raise spec.partitions" in source.useful.limit


@pytest.mark.parametrize(
    ("splits", "row_bytes", "available", "most", "queue_bytes"),
    [
        (800, 100, None, 63, 1747626),
        (800, 100, 512 * MIB, 8, 1864135),
        (800, 16 * MIB, None, 7, 2 * MIB),
        (800, 16 * MIB, 512 * MIB, 0, 2 * MIB),
        (20, 100, None, 2, 2 * MIB),
        (8, 100, None, 1, 2 * MIB),
    ],
)
def test_the_automatic_read_ahead_is_bounded_by_memory_and_splits(
    system: System,
    splits: int,
    row_bytes: int,
    available: int | None,
    most: int,
    queue_bytes: int,
) -> None:
    own = system.add_sidecar()
    own._available_bytes = available
    job = wide_job(row_bytes)
    job.num_splits = splits
    source = own.row_source(job)
    assert (source.read_ahead.most, source.queue_bytes(1000)) == (most, queue_bytes)
    assert source.useful.number == min(splits, 8 * (1 + most))


def test_a_memory_limit_without_room_for_the_rows_is_an_error_with_one_that_fits(
    system: System,
) -> None:
    own = system.add_sidecar(sidecar={"bufferBytes": 1 << 20, "readAhead": 0})
    own._available_bytes = 383 * MIB
    need = 128 + 8 * (5 + 2 * 16)
    with pytest.raises(ConfigError, match=f"need {need} MiB .* leaves 383 MiB.*{need + 1}Mi"):
        own.row_source(wide_job(16 * MIB))


def test_a_damaged_dataset_is_refused(system: System) -> None:
    own = system.add_sidecar(**NO_DATASET)
    with pytest.raises(ConfigError, match="is damaged"):
        own.open_job(types_pb2.Job(name="train", dataset_id="0"), b"graph")


def test_consumer_0_must_bring_the_dataset(system: System) -> None:
    own = system.add_sidecar(**NO_DATASET)
    with pytest.raises(ConfigError, match=r"names no dataset.*spec\.dataset\.entryPoint"):
        own.open_job(types_pb2.Job(), b"")


def test_a_dataset_that_no_worker_describes_times_out(tmp_path: Path) -> None:
    config = InputConfig(DatasetConfig("a:b"), sidecar=DeliveryConfig(1, 0.2, 1 << 12))
    own = JobInput("train", config, "127.0.0.1:9", Credentials(), tmp_path, TrainerRanks())
    with pytest.raises(UnavailableError, match=r"none is registered.*workers are running"):
        own.open_job(types_pb2.Job(), b"")
    assert not own.streams.waiting
    own.link.start()
    own.close()


def test_the_description_for_a_trainer_that_is_gone_is_cancelled() -> None:
    class Call:
        cancelled = False

        def result(self, timeout: float) -> Any:
            assert timeout == job_input._REPORT_SECONDS
            raise grpc.FutureTimeoutError

        def cancel(self) -> None:
            self.cancelled = True

    def report(_: str) -> None:
        raise BrokenPipeError

    call, reader = Call(), Mock()
    reader.link.pool.slow_description.return_value = "describing takes long"
    with pytest.raises(BrokenPipeError):
        JobInput._described(reader, cast(Any, call), "data:rows", report)
    assert call.cancelled
