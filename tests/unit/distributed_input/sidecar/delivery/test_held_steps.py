from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from distributed_input.sidecar.delivery import held_steps
from distributed_input.sidecar.delivery.held_steps import FullStep, HeldSteps, OthersEnded


class Others:
    """The barrier: the others have reported `reported` steps, and have `steps` in all."""

    def __init__(self) -> None:
        self.reported, self.steps = 0, 1 << 30
        self.awaited: list[int] = []

    def all_have_full_step(self, steps: int) -> bool | None:
        return steps < self.steps if steps < self.reported else None

    def await_full_step(self, steps: int) -> bool:
        self.awaited.append(steps)
        self.reported = steps + 1
        return steps < self.steps


class Trainer:
    has_unsent = False
    trainer_waits = True

    def __init__(self) -> None:
        self.flushed: list[threading.Event] = []
        self.reports: list[str] = []

    def flush(self, cancelled: threading.Event) -> None:
        self.flushed.append(cancelled)

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        self.reports.append(what)


@pytest.fixture
def sent() -> list[int]:
    return []


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


@pytest.fixture
def held(sent: list[int], trainer: Trainer) -> HeldSteps:
    return HeldSteps(trainer, lambda step: sent.append(step.number))


def add(held: HeldSteps, number: int, others: Any) -> None:
    held.add(FullStep(number, (), None), others)


def test_steps_are_sent_in_order_once_the_others_have_reported(
    held: HeldSteps, sent: list[int], trainer: Trainer
) -> None:
    others, cancelled = Others(), threading.Event()
    assert not held
    assert not held.has_unsent
    for number in range(3):
        add(held, number, others)
    assert held
    assert not held.has_unsent
    others.reported = 2
    assert sent == []
    assert held.has_unsent
    held.flush(cancelled)
    assert sent == [0, 1]
    assert trainer.flushed == [cancelled]
    assert not held.has_unsent
    held.send_one()
    assert (sent, others.awaited) == ([0, 1, 2], [2])
    assert not held
    held.send_one()
    assert others.awaited == [2], "nothing is held"


def test_a_step_may_be_sent_at_once(held: HeldSteps, sent: list[int]) -> None:
    others = Others()
    others.reported = 1
    add(held, 0, others)
    assert sent == [0]
    assert not held


def test_no_step_is_sent_after_the_end_of_the_others(held: HeldSteps, sent: list[int]) -> None:
    others = Others()
    others.steps = 1
    add(held, 0, others)
    add(held, 1, others)
    others.reported = 2
    assert held.has_unsent
    with pytest.raises(OthersEnded):
        held.flush(threading.Event())
    with pytest.raises(OthersEnded):
        held.send_one()
    assert sent == [0]


def test_only_some_steps_are_held(
    held: HeldSteps, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_steps, "MOST_STEPS", 2)
    others = Others()
    for number in range(4):
        add(held, number, others)
    assert (sent, others.awaited) == ([0, 1], [0, 1])


def test_all_steps_are_sent_at_the_end(held: HeldSteps, sent: list[int]) -> None:
    others = Others()
    for number in range(3):
        add(held, number, others)
    held.send_all()
    assert sent == others.awaited == [0, 1, 2]


def test_abandoned_steps_release_their_slots(held: HeldSteps, sent: list[int]) -> None:
    abandoned: list[str] = []

    def writer(name: str) -> Any:
        return SimpleNamespace(abandon=lambda: abandoned.append(name))

    others: Any = Others()
    first, second, other = (writer(name) for name in "abc")
    held.add(FullStep(0, (first,), None), others)
    assert held.has(first)
    held.add(FullStep(1, (second,), None), others)
    assert held.has(second)
    assert not held.has(other)
    held.abandon()
    assert abandoned == ["a", "b"]
    assert not held
    assert not held.has(second)
    assert sent == []


def test_the_trainer_behind_it_is_asked(held: HeldSteps, trainer: Trainer) -> None:
    trainer.has_unsent = True
    assert held.has_unsent
    assert held.trainer_waits
    held.report_wait("rows", threading.Event())
    assert trainer.reports == ["rows"]
