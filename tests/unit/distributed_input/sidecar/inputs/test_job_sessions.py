from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import types_pb2
from distributed_input.link.trainer.slots import Batch
from distributed_input.order import share
from distributed_input.sidecar.delivery import outbox
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.job_sessions import ConsumerStats
from distributed_input.trainer import open_consumers
from distributed_input.trainer.consumer import Consumer
from tests.unit.distributed_input.sidecar.system import (
    BATCH,
    ROWS,
    System,
    current_session,
    eventually,
    running,
)

BATCHES = ROWS // BATCH


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


@pytest.fixture
def job(system: System) -> JobInput:
    return system.add_sidecar()


def stats(job: JobInput) -> ConsumerStats:
    return job.sessions.stats()


def read(reader: Consumer, batches: int | None = None) -> int:
    """Read some or all batches of the next epoch. Return their number of rows."""
    return sum(batch.rows for batch in itertools.islice(reader.units(reader.begin()), batches))


def is_in_use(system: System) -> bool:
    """Return whether the dispatcher reserves the job's name for its consumers."""
    entry = system.state.jobs.entry("train")
    return entry is not None and system.state.jobs.in_use(system.clock.now(), entry)


def test_batches_and_rows_count_once_received(system: System, job: JobInput) -> None:
    reader = system.connect()
    assert read(reader, 3) == 3 * BATCH
    reader.close()
    eventually(lambda: stats(job).batches == 3)
    assert stats(job).rows == 3 * BATCH
    assert stats(job).bytes == 3 * BATCH * 8


def test_each_element_is_a_batch_if_the_trainer_divides_it_among_its_replicas(
    system: System, job: JobInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "are_divided", lambda job: True)
    reader = system.connect(replicas=2)
    read(reader, 4)
    reader.close()
    eventually(lambda: stats(job).batches == 4)


def test_batches_of_an_abandoned_epoch_do_not_count(system: System, job: JobInput) -> None:
    reader = system.connect()
    read(reader, 2)
    read(reader, 1)
    reader.close()
    eventually(lambda: stats(job).batches == 3)
    assert (stats(job).rows, stats(job).epoch) == (3 * BATCH, 1)


def test_the_epoch_is_the_one_that_the_trainer_reads(system: System, job: JobInput) -> None:
    reader = system.connect()
    read(reader)
    # The next epoch has been started, and sent, ahead of time.
    eventually(lambda: any(fact.epoch == 1 and fact.ended for fact in job.sessions.facts()))
    eventually(lambda: stats(job).batches == BATCHES)
    assert stats(job).epoch == 0
    read(reader, 1)
    eventually(lambda: stats(job).epoch == 1)
    reader.close()
    eventually(lambda: stats(job).batches == BATCHES + 1)


def test_a_trainer_that_closes_after_an_epoch_has_finished(system: System, job: JobInput) -> None:
    reader = system.connect()
    read(reader)
    assert not stats(job).finished
    reader.close()
    del reader  # and with it the socket
    eventually(lambda: stats(job).finished)
    assert stats(job).batches == BATCHES
    eventually(lambda: not is_in_use(system))


def test_a_trainer_that_closes_within_an_epoch_has_not_finished(
    system: System, job: JobInput
) -> None:
    reader = system.connect()
    read(reader)
    read(reader, BATCHES - 1)
    reader.close()
    del reader
    eventually(lambda: job.sessions.is_idle)
    assert not stats(job).finished
    assert stats(job).batches == 2 * BATCHES - 1


def test_the_last_report_of_a_replaced_trainer_counts(
    system: System, job: JobInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_consumers, "add", lambda reader: None)  # as if in another process
    first = system.connect()
    read(first, 2)
    before = job.sessions._current
    second = system.connect()
    eventually(lambda: job.sessions._current is not before)
    first.close()  # reports the second batch
    eventually(lambda: stats(job).batches == 2)
    second.close()


def test_counts_continue_over_sessions(system: System, job: JobInput) -> None:
    for _ in range(2):
        reader = system.connect()
        read(reader, 2)
        reader.close()
    eventually(lambda: stats(job).batches == 4)
    first = system.connect()
    second = system.connect()  # fences the first
    read(second, 1)
    second.close()
    eventually(lambda: stats(job).batches == 5)
    first.close()


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_position_within_a_step_loses_and_repeats_no_row(system: System, replicas: int) -> None:
    """Other replicas cannot restore it."""
    system.add_sidecar()
    first = system.connect(replicas=4)
    rows = [row for batch in itertools.islice(first.units(first.begin()), 7) for row in ids(batch)]
    position = first.position()
    assert position.extra_units == 3
    first.close()
    second = system.connect(replicas=replicas)
    second.restore(position)
    if replicas != 4:
        with pytest.raises(PositionError, match="1 with 4 replicas, now: 1 with"):
            read(second)
    else:
        rows += [row for batch in second.units(second.begin()) for row in ids(batch)]
        assert sorted(rows) == list(range(ROWS))
    second.close()


def ids(batch: Batch) -> list[int]:
    return np.asarray(batch.buffers[0]).view(np.int64).tolist()


def test_a_trainer_that_stops_reading_pauses(
    system: System, job: JobInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_PAUSE_SECONDS", 0.0)
    reader = system.connect()
    assert not stats(job).pauses
    units = reader.units(reader.begin())
    next(units)
    eventually(lambda: stats(job).pauses)
    reader.close()


def test_a_session_counts_only_its_own_units(tmp_path: Path) -> None:
    rows = 8000  # twice the rows that fit into the buffer
    with running(tmp_path, rows) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 16, "timeoutSeconds": 20})
        reader = system.connect()
        units = reader.units(reader.begin())
        list(itertools.islice(units, 2))
        # The trainer continues over another connection.
        current_session(job)._socket._socket.shutdown(socket.SHUT_RDWR)
        assert sum(1 for _ in units) == rows // BATCH - 2
        assert reader._epoch is not None
        first = reader._epoch.units_before
        assert first >= 2
        second = current_session(job)
        eventually(lambda: second.stats().batches == rows // BATCH - first)
        reader.close()


def test_a_sidecar_that_stops_releases_its_job_at_once(system: System, job: JobInput) -> None:
    reader = system.connect()
    read(reader, 1)
    eventually(lambda: system.state.status(system.clock.now()).consumers)
    assert is_in_use(system)
    system.sidecars.pop().close()
    assert not is_in_use(system)
    reader.close()


def test_trainers_that_start_again_together_begin_a_new_run(tmp_path: Path) -> None:
    """Each of them has connected before one opens the job."""
    folders = [tmp_path / name for name in "ab"]
    with running(tmp_path) as system:
        jobs: list[JobInput] = []
        for consumer, folder in enumerate(folders):
            folder.mkdir()
            system.folder = folder
            jobs.append(system.add_sidecar(consumer, 2))
        runs: list[list[str]] = []
        for _ in range(2):
            readers = [Consumer(folder, "train", 10.0) for folder in folders]
            assert all(job.link.publish_facts(10.0, threading.Event()) for job in jobs)
            for reader in readers:
                reader.open(reader.welcome.config, b"", 1)
            runs.append([reader.opened.job.run for reader in readers])
            assert not any(stats(job).no_trainer for job in jobs)
            for reader in readers:
                reader.close()
            eventually(lambda: all(job.sessions.is_idle for job in jobs))
    (first, second), (third, fourth) = runs
    assert first == second != third == fourth


def test_counts_are_added_and_states_are_the_later_ones() -> None:
    earlier = ConsumerStats(1, 2, 3, 4, 5.0, 6.0, 0.7, 8, True, "rows", 9)
    later = ConsumerStats(10, 20, 30, 40, 50.0, 60.0, 0.5, 80, False, "", 90)
    totals = types_pb2.ReceivedTotals(rows=7)
    assert ConsumerStats(received=totals).after(ConsumerStats()).received is totals
    assert ConsumerStats().after(ConsumerStats(received=totals)).received is totals
    assert later.after(earlier) == ConsumerStats(10, 22, 33, 44, 55.0, 66.0, 0.5, 80, False, "", 90)
