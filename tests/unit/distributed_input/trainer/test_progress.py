"""Waits are measured from the first unit on, and again for each sidecar."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from distributed_input.api.errors import DistributedInputError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.trainer import progress, session
from distributed_input.trainer.progress import REPORT_SECONDS, WaitMeter, totals_of
from tests.unit.distributed_input.trainer.sidecars import SECONDS, Sidecar, begun, opened
from tests.unit.distributed_input.virtual_time import VirtualTime as Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(monkeypatch)
    clock.replace(progress)
    return clock


def waited(meter: WaitMeter, clock: Clock, seconds: float) -> bool:
    meter.begin_wait()
    clock.now += seconds
    return meter.end_wait(has_unit=True)


def test_startup_is_no_wait(clock: Clock) -> None:
    meter = WaitMeter()
    assert waited(meter, clock, 30.0), "the sidecar learns that this trainer waits no more"
    report = meter.report(1, 5)
    assert (report.wait_seconds, report.wall_seconds, report.units) == (0.0, 0.0, 5)
    clock.now += 2.0
    assert meter.report(1, 6).wall_seconds == 2.0


def test_a_wait_counts_while_it_lasts_and_after_an_error(clock: Clock) -> None:
    meter = WaitMeter()
    waited(meter, clock, 30.0)
    clock.now += 2.0
    meter.begin_wait()
    clock.now += 6.0
    for message in (meter.waiting(1), meter.report(1, 1)):
        assert (message.wait_seconds, message.wall_seconds) == (6.0, 8.0)
        assert (message.received.wait_seconds, message.received.wall_seconds) == (6.0, 8.0)
    clock.now += 1.0
    assert not meter.end_wait(has_unit=False), "Ctrl-C or an error ended it"
    clock.now += 3.0  # the program's own work
    report = meter.report(1, 1)
    assert (report.wait_seconds, report.wall_seconds) == (7.0, 12.0)


def test_a_wait_of_tensorflow_ahead_of_the_loop_does_not_count(clock: Clock) -> None:
    """The loop compiles or evaluates for 60 s, and then waits for 5 s."""
    meter = WaitMeter()
    waited(meter, clock, 1.0)
    meter.begin_wait()
    for _ in range(30):
        clock.now += 2.0
        meter.continue_wait(requested=False)
        message = meter.waiting(1)
        assert (message.waiting, message.wall_seconds) == (True, 0.0)
    clock.now += 2.0
    meter.continue_wait(requested=True)
    assert meter.wait_due, "the sidecar counts from now on"
    message = meter.waiting(1)
    assert (message.wait_seconds, message.wall_seconds) == (2.0, 62.0)
    clock.now += 1.0
    meter.continue_wait(requested=True)
    assert not meter.wait_due
    clock.now += 2.0
    meter.end_wait(has_unit=True)
    assert meter.report(1, 1).wait_seconds == 5.0


def test_a_wait_for_the_first_unit_has_no_times(clock: Clock) -> None:
    meter = WaitMeter()
    meter.begin_wait()
    clock.now += 6.0
    message = meter.waiting(1)
    assert (message.wait_seconds, message.wall_seconds) == (0.0, 0.0)
    assert not message.HasField("received")


def test_a_wait_goes_on_with_the_next_sidecar(clock: Clock) -> None:
    meter = WaitMeter()
    waited(meter, clock, 1.0)
    meter.begin_wait()
    clock.now += 5.0
    meter.restart()
    clock.now += 2.0
    report = meter.report(1, 0)
    assert (report.wait_seconds, report.wall_seconds) == (2.0, 2.0)
    assert (report.received.wait_seconds, report.received.wall_seconds) == (7.0, 7.0)


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
    later = WaitMeter(totals)  # of the next consumer
    waited(later, clock, 1.0)
    waited(later, clock, 1.0)
    received = later.report(1, 2).received
    assert (received.rows, received.wait_seconds, received.wall_seconds) == (5, 7.0, 10.0)


def test_the_consumers_of_a_job_in_a_process_share_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("totals")
    own = totals_of(folder, "train", "")
    assert totals_of(folder, "train", "") is own
    assert totals_of(folder, "train", "other").trainer != own.trainer
    monkeypatch.setattr(os, "getpid", lambda: 1)  # a fork
    assert totals_of(folder, "train", "").trainer != own.trainer


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
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the sidecar would think that a loop with long steps reads nothing."""
    monkeypatch.setattr(progress, "_LATEST_REPORT_SECONDS", 0.0)
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    trainer.units_together(generation, 3)
    for expected in (1, 2, 3):
        next(units)
        while (message := trainer.received.get(timeout=SECONDS)).progress.units < expected:
            pass
        assert message.progress.units == expected


def test_a_wait_that_an_error_ends_counts(sidecar: Sidecar) -> None:
    """The last report of a trainer, when it closes the input, has the whole wait."""
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    trainer.unit(generation, 0)
    next(units)
    failure = trainer_pb2.Failure(generation=generation, kind="unavailable", message="no worker")
    timer = threading.Timer(0.5, lambda: trainer.send(failure=failure))
    timer.start()
    with pytest.raises(DistributedInputError, match="no worker"):
        next(units)
    time.sleep(1)  # what the program does after the error is no wait
    consumer.close()
    while (message := trainer.received.get(timeout=SECONDS)).progress.wait_seconds < 0.4:
        pass
    assert message.progress.wait_seconds == pytest.approx(0.5, abs=0.3)
    assert message.progress.wall_seconds == pytest.approx(1.5, abs=0.4)


def test_a_wait_for_another_thread_that_reconnects_counts(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    trainer.units_together(generation, 2)
    next(units)
    consumer._receive_lock.acquire()
    threading.Timer(0.5, consumer._receive_lock.release).start()
    next(units)
    assert consumer._session.meter.report(generation, 2).wait_seconds == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize(("requested", "counts"), [(1, False), (2, True)])
def test_a_consumer_waits_only_if_the_loop_has_requested_a_unit(
    tmp_path: Path,
    sidecar: Sidecar,
    monkeypatch: pytest.MonkeyPatch,
    requested: int,
    counts: bool,
) -> None:
    class Counter:
        iterators = 1

        def requested(self, iterator: int) -> int:
            return requested

        def invalidate(self) -> None:
            raise AssertionError("nothing was restored")

    monkeypatch.setattr(session, "_POLL_SECONDS", 0.05)
    consumer = opened(tmp_path)
    trainer = sidecar.trainer()
    consumer.count_steps(Counter())
    generation = consumer.begin()
    units = consumer.units(generation)
    trainer.unit(generation, 0)
    next(units)
    threading.Timer(0.6, trainer.unit, [generation, 1]).start()
    next(units)
    assert (consumer._session.meter.report(generation, 2).wait_seconds > 0.3) == counts


def test_a_fork_counts_although_another_thread_held_the_lock() -> None:
    with progress._totals_lock:
        child = os.fork()
        if not child:
            os._exit(0 if progress._totals_lock.acquire(timeout=5) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_waits_add_up_and_are_reported_now_and_then(clock: Clock) -> None:
    meter = WaitMeter()
    waited(meter, clock, 1.0)
    meter.report(1, 1)
    assert not waited(meter, clock, REPORT_SECONDS / 2)
    assert waited(meter, clock, REPORT_SECONDS)
    assert meter.report(1, 3).wait_seconds == 1.5 * REPORT_SECONDS
