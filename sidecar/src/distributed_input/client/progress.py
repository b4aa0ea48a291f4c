"""How long the training loop waits for input, and the messages that report it to the sidecar."""

from __future__ import annotations

import time
from collections.abc import Callable

from distributed_input.api.proto import trainer_pb2

REPORT_SECONDS = 0.5  # between reports while the loop waits


class WaitMeter:
    """Measures the waits of one connection from its first unit on: startup is not a stall.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._waited = 0.0
        self._first_unit_at: float | None = None
        self._reported_at = 0.0

    def restart(self) -> None:
        """Measure from zero, for a new sidecar that continues a running epoch."""
        if self._first_unit_at is not None:
            self._waited, self._first_unit_at = 0.0, self._now()

    def add_wait(self, began: float) -> bool:
        """Add a wait that began at the time `began` and ended with a unit.

        Returns:
            Whether a report is due.
        """
        now = self._now()
        if self._first_unit_at is None:
            self._first_unit_at = now
            return True  # so that the sidecar stops counting this trainer as waiting
        self._waited += now - began
        return now - self._reported_at > REPORT_SECONDS

    def report(self, generation: int, units: int) -> trainer_pb2.Progress:
        """Return a report for the sidecar: `units` units of the generation were read."""
        now = self._reported_at = self._now()
        return trainer_pb2.Progress(
            units=units,
            wait_seconds=self._waited,
            wall_seconds=now - self._first_unit_at if self._first_unit_at is not None else 0.0,
            generation=generation,
        )

    def waiting(self, generation: int) -> trainer_pb2.Progress:
        """Return the message of a trainer that still waits for a unit of the generation."""
        return trainer_pb2.Progress(waiting=True, generation=generation, wait_seconds=self._waited)
