from __future__ import annotations

import pytest

from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from tests.unit.distributed_input.sidecar.steps.clocks import Clock


def test_the_deadline_passes_without_progress(clock: Clock) -> None:
    deadline = ProgressDeadline(60)
    clock.now += 60
    assert not deadline.has_passed
    clock.now += 0.1
    assert deadline.has_passed


def test_only_new_progress_moves_the_deadline(clock: Clock) -> None:
    deadline = ProgressDeadline(60)
    deadline.record_progress(at=20)
    clock.now += 50
    deadline.record_progress(at=clock.now)
    clock.now += 59
    assert not deadline.has_passed
    deadline.observe("a state")
    clock.now += 59
    deadline.observe("a state")
    assert not deadline.has_passed
    clock.now += 2
    deadline.observe("a state")
    assert deadline.has_passed


@pytest.mark.parametrize(
    ("seconds", "expected"), [(600, [10, 30, 70, 150, 300, 450, 600]), (4, [1, 2, 3, 4])]
)
def test_reports_become_rarer_but_there_are_at_least_four(
    clock: Clock, seconds: int, expected: list[int]
) -> None:
    deadline, began = ProgressDeadline(seconds), clock.now
    reports = []
    while not deadline.has_passed:
        if (waited := deadline.report_due()) is not None:
            assert waited == clock.now - began
            reports.append(waited)
        clock.now += 0.5
    assert reports == expected
