"""The signals that end the trainers."""

from __future__ import annotations

import signal

from distributed_input.runner.processes.termination import Termination, due_signal, escalate


def due(termination: Termination, now: float) -> int:
    return due_signal(termination, now, grace=30.0)


def test_an_interrupt_becomes_a_sigterm_and_then_a_sigkill() -> None:
    interrupt = Termination(signal.SIGINT, since=100.0)
    assert due(interrupt, 100.0) == signal.SIGINT
    assert due(interrupt, 129.9) == signal.SIGINT
    assert due(interrupt, 130.0) == signal.SIGTERM
    assert due(interrupt, 140.0) == signal.SIGKILL


def test_a_sigterm_becomes_a_sigkill() -> None:
    terminate = Termination(signal.SIGTERM, since=100.0)
    assert due(terminate, 129.9) == signal.SIGTERM
    assert due(terminate, 130.0) == signal.SIGKILL


def test_escalations_send_sigterm_and_then_sigkill_early() -> None:
    once = escalate(Termination(signal.SIGINT, since=100.0), 101.0)
    assert due(once, 101.0) == signal.SIGTERM
    assert due(once, 104.0) == signal.SIGKILL
    assert due(escalate(once, 101.5), 101.5) == signal.SIGKILL
