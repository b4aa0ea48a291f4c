"""A wait is over when nothing has come further for too long, and is told of before that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distributed_input.sidecar.steps import progress_deadline as patience
from distributed_input.sidecar.steps.progress_deadline import Patience


class Clock:
    """Seconds that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_it_is_over_once_nothing_has_come_for_so_long(clock: Clock) -> None:
    wait = Patience(60)
    clock.now += 60
    assert not wait.is_over
    clock.now += 0.1
    assert wait.is_over


def test_progress_puts_it_off_and_what_was_before_it_does_not(clock: Clock) -> None:
    wait = Patience(60)
    wait.advanced(at=20)
    clock.now += 50
    wait.advanced(at=clock.now)
    clock.now += 59
    assert not wait.is_over
    wait.saw("a state")
    clock.now += 59
    wait.saw("a state")
    assert not wait.is_over
    clock.now += 2
    wait.saw("a state")
    assert wait.is_over


@pytest.mark.parametrize(
    ("seconds", "told"), [(600, [10, 30, 70, 150, 300, 450, 600]), (4, [1, 2, 3, 4])]
)
def test_it_is_told_of_ever_more_seldom_but_some_times(
    clock: Clock, seconds: int, told: list[int]
) -> None:
    wait, began = Patience(seconds), clock.now
    found = []
    while not wait.is_over:
        if (waited := wait.is_due()) is not None:
            assert waited == clock.now - began
            found.append(waited)
        clock.now += 0.5
    assert found == told
