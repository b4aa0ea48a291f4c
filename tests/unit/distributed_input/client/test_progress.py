"""Waits are measured from the first unit on, and again for each sidecar."""

from __future__ import annotations

from distributed_input.client.progress import REPORT_SECONDS, WaitMeter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waited(meter: WaitMeter, clock: Clock, seconds: float) -> bool:
    began = clock.now
    clock.now += seconds
    return meter.add_wait(began)


def test_startup_is_no_wait() -> None:
    clock = Clock()
    meter = WaitMeter(clock)
    assert waited(meter, clock, 30.0), "the sidecar learns that this trainer waits no more"
    report = meter.report(1, 5)
    assert (report.wait_seconds, report.wall_seconds, report.units) == (0.0, 0.0, 5)
    clock.now += 2.0
    assert meter.report(1, 6).wall_seconds == 2.0


def test_waits_add_up_and_are_reported_now_and_then() -> None:
    clock = Clock()
    meter = WaitMeter(clock)
    waited(meter, clock, 1.0)
    meter.report(1, 1)
    assert not waited(meter, clock, REPORT_SECONDS / 2)
    assert waited(meter, clock, REPORT_SECONDS)
    assert meter.report(1, 3).wait_seconds == 1.5 * REPORT_SECONDS


def test_a_restart_measures_from_zero() -> None:
    clock = Clock()
    meter = WaitMeter(clock)
    waited(meter, clock, 1.0)
    waited(meter, clock, 4.0)
    clock.now += 3.0
    meter.restart()
    report = meter.report(1, 3)
    assert (report.wait_seconds, report.wall_seconds) == (0.0, 0.0)


def test_a_restart_before_the_first_unit_changes_nothing() -> None:
    clock = Clock()
    meter = WaitMeter(clock)
    meter.restart()
    assert waited(meter, clock, 9.0)
    assert meter.report(1, 1).wait_seconds == 0.0


def test_a_trainer_that_waits_reports_so() -> None:
    message = WaitMeter(Clock()).waiting(7)
    assert (message.waiting, message.generation) == (True, 7)
