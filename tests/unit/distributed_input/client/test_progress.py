"""Waits are measured from the first unit on, and again for each sidecar."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.client import progress
from distributed_input.client.progress import REPORT_SECONDS, WaitMeter, totals_of
from distributed_input.client.reader import InputReader
from tests.unit.distributed_input.client.sidecars import SECONDS, Sidecar
from tests.unit.distributed_input.virtual_time import VirtualTime as Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch)
    clock.replace(progress)
    return clock


def waited(meter: WaitMeter, clock: Clock, seconds: float) -> bool:
    began = clock.now
    clock.now += seconds
    return meter.add_wait(began)


def test_startup_is_no_wait(clock: Clock) -> None:
    meter = WaitMeter()
    assert waited(meter, clock, 30.0), "the sidecar learns that this trainer waits no more"
    report = meter.report(1, 5)
    assert (report.wait_seconds, report.wall_seconds, report.units) == (0.0, 0.0, 5)
    clock.now += 2.0
    assert meter.report(1, 6).wall_seconds == 2.0


def test_waits_add_up_and_are_reported_now_and_then(clock: Clock) -> None:
    meter = WaitMeter()
    waited(meter, clock, 1.0)
    meter.report(1, 1)
    assert not waited(meter, clock, REPORT_SECONDS / 2)
    assert waited(meter, clock, REPORT_SECONDS)
    assert meter.report(1, 3).wait_seconds == 1.5 * REPORT_SECONDS


def test_a_restart_measures_from_zero(clock: Clock) -> None:
    meter = WaitMeter()
    waited(meter, clock, 1.0)
    waited(meter, clock, 4.0)
    clock.now += 3.0
    meter.restart()
    report = meter.report(1, 3)
    assert (report.wait_seconds, report.wall_seconds) == (0.0, 0.0)


def test_totals_include_all_connections(clock: Clock) -> None:
    totals = types_pb2.ReceivedTotals(trainer="t")
    meter = WaitMeter(totals)
    waited(meter, clock, 1.0)
    waited(meter, clock, 4.0)
    meter.add_unit(3, ends_batch=False)
    meter.add_unit(2, ends_batch=True)
    meter.report(1, 2)
    clock.now += 3.0
    meter.restart()
    waited(meter, clock, 2.0)
    for _ in range(2):  # a report adds nothing by itself
        received = meter.report(1, 2).received
        assert (received.trainer, received.rows, received.batches) == ("t", 5, 1)
        assert (received.wait_seconds, received.wall_seconds) == (6.0, 9.0)
    later = WaitMeter(totals)  # of the next reader
    waited(later, clock, 1.0)
    waited(later, clock, 1.0)
    received = later.report(1, 2).received
    assert (received.rows, received.wait_seconds, received.wall_seconds) == (5, 7.0, 10.0)


def test_the_readers_of_a_job_in_a_process_share_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("totals")
    own = totals_of(folder, "train", "")
    assert totals_of(folder, "train", "") is own
    assert totals_of(folder, "train", "other").trainer != own.trainer
    monkeypatch.setattr(os, "getpid", lambda: 1)  # a fork
    assert totals_of(folder, "train", "").trainer != own.trainer


def test_a_restart_before_the_first_unit_changes_nothing(clock: Clock) -> None:
    meter = WaitMeter()
    meter.restart()
    assert waited(meter, clock, 9.0)
    assert meter.report(1, 1).wait_seconds == 0.0


def test_a_trainer_that_waits_reports_so() -> None:
    message = WaitMeter().waiting(7)
    assert (message.waiting, message.generation) == (True, 7)


def test_the_gaps_between_reports_of_a_wait_double(clock: Clock) -> None:
    meter, began = WaitMeter(), clock.now
    at: list[float] = []
    while clock.now - began < 3600:
        if meter.wait_due:
            at.append(clock.now - began)
            meter.waiting(1)
        clock.now += 1
    assert at == [2**i - 2 for i in range(1, 12)]


def test_a_new_sidecar_and_a_report_of_units_begin_with_short_gaps(clock: Clock) -> None:
    meter = WaitMeter()
    for again in (meter.restart, lambda: meter.report(1, 1)):
        for _ in range(8):
            meter.waiting(1)
        assert not meter.wait_due
        again()
        assert meter.wait_due


def test_a_loop_that_reads_without_waits_reports_too(clock: Clock) -> None:
    meter = WaitMeter()
    waited(meter, clock, 1.0)
    meter.report(1, 1)
    clock.now += 1.9
    assert not meter.report_due
    clock.now += 0.2
    assert meter.report_due
    meter.report(1, 2)
    assert not meter.report_due


def test_units_that_arrived_together_are_reported_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the sidecar would think that a loop with long steps reads nothing."""
    monkeypatch.setattr(progress, "_LATEST_REPORT_SECONDS", 0.0)
    sidecar = Sidecar(tmp_path)
    reader = InputReader(tmp_path, "", SECONDS)
    reader.open(types_pb2.Job(), b"", 1)
    trainer = sidecar.trainer()
    units = reader.units(reader.begin())
    generation = trainer.start().generation
    together = trainer_pb2.Units()
    for index in range(3):
        together.units.add(
            generation=generation, index=index, rows=1, slot=64 * index, offsets=[64 * index],
            sizes=[1],
        )  # fmt: skip
    trainer.send(units=together)
    for expected in (1, 2, 3):
        next(units)
        while (message := trainer.received.get(timeout=SECONDS)).progress.units < expected:
            pass
        assert message.progress.units == expected
    reader.close()
    sidecar.close()
