"""Calls that may never return, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from distributed_input.worker.states.saved_state import StateTimeoutError

_Result = TypeVar("_Result")


def within(timeout: float, what: str, work: Callable[[], _Result]) -> _Result:
    """Return what `work` returns. It runs in another thread, which goes on after the deadline.

    Args:
        timeout: seconds until the deadline.
        what: what `work` does, for the error.
        work: the call.

    Raises:
        StateTimeoutError: it did not return in time.
        Exception: any error of `work`.
    """
    results: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not results:
        raise StateTimeoutError(f"it took more than {timeout:.0f} s to {what}")
    return results[0]
