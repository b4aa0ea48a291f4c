"""What a sidecar reports of its trainer: what the trainer has, not what was sent to it."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.client.reader import InputReader
from distributed_input.runtime import metrics
from distributed_input.sidecar.inputs import Input
from distributed_input.sidecar.samples import samples
from tests.unit.distributed_input.sidecar.system import BATCH, ROWS, System, eventually, running

BATCHES = ROWS // BATCH


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


@pytest.fixture
def made(system: System) -> Input:
    return system.add_sidecar()


def read(reader: InputReader, batches: int | None = None) -> int:
    """Read so many batches of the next epoch, or all; how many rows they had."""
    return sum(batch.rows for batch in itertools.islice(reader.units(reader.begin()), batches))


def test_batches_and_rows_are_those_received(system: System, made: Input) -> None:
    reader = system.connect()
    assert read(reader, 3) == 3 * BATCH
    reader.close()
    eventually(lambda: made.stats().batches == 3)
    assert made.stats().rows == 3 * BATCH
    assert made.stats().bytes == 3 * BATCH * 8


def test_the_rest_of_an_epoch_that_is_dropped_does_not_count(system: System, made: Input) -> None:
    reader = system.connect()
    read(reader, 2)
    read(reader, 1)
    reader.close()
    eventually(lambda: made.stats().batches == 3)
    assert (made.stats().rows, made.stats().epoch) == (3 * BATCH, 1)


def test_the_epoch_is_the_one_that_the_trainer_is_in(system: System, made: Input) -> None:
    reader = system.connect()
    read(reader)
    # The next one has been begun, and sent, ahead of time.
    eventually(lambda: any(fact.epoch == 1 and fact.ended for fact in made._facts()))
    eventually(lambda: made.stats().batches == BATCHES)
    assert made.stats().epoch == 0
    read(reader, 1)
    eventually(lambda: made.stats().epoch == 1)
    reader.close()
    eventually(lambda: made.stats().batches == BATCHES + 1)


def test_a_trainer_that_closes_after_an_epoch_has_finished(system: System, made: Input) -> None:
    reader = system.connect()
    read(reader)
    assert not made.stats().finished
    reader.close()
    del reader  # and with it the socket
    eventually(lambda: made.stats().finished)
    assert made.stats().batches == BATCHES
    eventually(lambda: not used(system))


def test_one_that_closes_within_an_epoch_has_not(system: System, made: Input) -> None:
    reader = system.connect()
    read(reader)
    read(reader, BATCHES - 1)
    reader.close()
    del reader
    eventually(lambda: made._connection is None)
    assert not made.stats().finished
    assert made.stats().batches == 2 * BATCHES - 1


def test_counts_go_on_over_connections(system: System, made: Input) -> None:
    for _ in range(2):
        reader = system.connect()
        read(reader, 2)
        reader.close()
    eventually(lambda: made.stats().batches == 4)
    first = system.connect()
    second = system.connect()  # fences the first
    read(second, 1)
    second.close()
    eventually(lambda: made.stats().batches == 5)
    first.close()


def test_a_connection_counts_what_came_over_it(tmp_path: Path) -> None:
    rows = 8000  # twice what the ring has room for
    with running(tmp_path, rows) as system:
        made = system.add_sidecar(sidecar={"bufferBytes": 1 << 16, "timeoutSeconds": 20})
        reader = system.connect()
        units = reader.units(reader.begin())
        list(itertools.islice(units, 2))
        broken = made._connection
        assert broken is not None
        broken._socket.shutdown(socket.SHUT_RDWR)  # the trainer goes on over another
        assert sum(1 for _ in units) == rows // BATCH - 2
        assert reader._epoch is not None
        first = reader._epoch.units_before
        assert first >= 2
        second = made._connection
        assert second is not None
        eventually(lambda: second.stats().batches == rows // BATCH - first)
        reader.close()


def test_a_sidecar_that_stops_lets_go_of_its_job_at_once(system: System, made: Input) -> None:
    reader = system.connect()
    read(reader, 1)
    eventually(lambda: system.state.status(system.clock.now()).consumers)
    assert used(system)
    system.sidecars.pop().close()
    assert not used(system)
    reader.close()


def used(system: System) -> bool:
    """Whether the dispatcher keeps the job's name for those who read it."""
    entry = system.state.jobs.entry("train")
    return entry is not None and system.state.jobs.in_use(system.clock.now(), entry)


def test_every_metric_of_the_sidecar_is_served(system: System, made: Input) -> None:
    reader = system.connect()
    read(reader)
    eventually(lambda: made.stats().batches == BATCHES)
    made.streams.reconnects["UnavailableError"] += 2
    made.streams.lost_workers.add("w")
    found = {(sample.definition.name, sample.labels): sample.value for sample in samples(made)}
    names = {name for name, _ in found}
    wanted = {
        d.name for d in metrics.definitions() if d.name.startswith(f"{metrics.PREFIX}sidecar")
    }
    assert names == wanted
    value = {name.removeprefix(f"{metrics.PREFIX}sidecar_"): v for (name, _), v in found.items()}
    assert value["rows_total"] == ROWS
    assert value["batches_total"] == BATCHES
    assert value["bytes_total"] == ROWS * 8
    assert value["received_bytes_total"] >= ROWS * 8
    assert value["ring_bytes"] == 1 << 20
    assert value["useful_workers"] == 4
    assert value["worker_losses_total"] == 1
    assert 0 <= value["heartbeat_age_seconds"] < 5
    assert found[metrics.SIDECAR_RECONNECTS.name, ("train", "UnavailableError")] == 2
    reader.close()
