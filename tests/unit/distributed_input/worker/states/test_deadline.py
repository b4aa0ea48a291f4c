"""Calls with a deadline."""

from __future__ import annotations

import threading

import pytest

from distributed_input.worker.states.deadline import within
from distributed_input.worker.states.saved_state import StateTimeoutError


def test_the_result_or_error_of_a_call_is_passed_on() -> None:
    assert within(10.0, "count", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(10.0, "divide", lambda: 1 // 0)


def test_a_call_that_does_not_return_is_left_alone() -> None:
    release = threading.Event()
    with pytest.raises(StateTimeoutError, match="wait"):
        within(0.01, "wait", release.wait)
    release.set()
