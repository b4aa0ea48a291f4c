"""How long the training loop waits for input, and the messages that report it to the sidecar."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from distributed_input.api.proto import trainer_pb2, types_pb2

REPORT_SECONDS = 0.5  # between reports while the loop waits
_LATEST_REPORT_SECONDS = 2.0  # between reports while it reads without a wait
_FIRST_GAP_SECONDS = 2.0  # between the first two reports of one wait


_totals: dict[tuple[int, Path, str, str, int], types_pb2.ReceivedTotals] = {}
_totals_lock = threading.Lock()  # guards also the values


def _renew_lock(new_lock: Callable[[], threading.Lock] = threading.Lock) -> None:
    """In a fork: replace the lock, which another thread of the parent may hold."""
    global _totals_lock  # noqa: PLW0603 - it guards the totals of all consumers
    _totals_lock = new_lock()


os.register_at_fork(after_in_child=_renew_lock)


def totals_of(folder: Path, input_name: str, job: str, rank: int = 0) -> types_pb2.ReceivedTotals:
    """Return what this process has read of a job as one rank: one object for all its readers."""
    key = os.getpid(), folder, input_name, job, rank  # a fork of the process counts on its own
    with _totals_lock:
        if key not in _totals:
            trainer = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
            _totals[key] = types_pb2.ReceivedTotals(trainer=trainer)
        return _totals[key]


class WaitMeter:
    """Measures the waits of one connection from its first unit on: startup is not a stall."""

    def __init__(self, totals: types_pb2.ReceivedTotals | None = None) -> None:
        self._totals = types_pb2.ReceivedTotals() if totals is None else totals
        self._added = (0.0, 0.0)  # waits and time that the totals include
        self._waited = 0.0
        self._wait_began: float | None = None  # of the wait that has not ended
        self._is_ahead = False  # in this wait, the loop has not requested a unit yet
        self._first_unit_at: float | None = None
        self._reported_at = 0.0
        self._report_wait_first()

    def _report_wait_first(self) -> None:
        self._wait_due_at, self._wait_gap = float("-inf"), _FIRST_GAP_SECONDS

    def restart(self) -> None:
        """Measure from zero, for a new sidecar that continues a running epoch."""
        self._report_wait_first()
        if self._first_unit_at is not None:
            with _totals_lock:
                self._add_times()
                now = time.monotonic()
                self._waited, self._first_unit_at = 0.0, now
                self._added = (0.0, 0.0)
                if self._wait_began is not None:
                    self._wait_began = now

    def add_unit(self, rows: int, *, ends_batch: bool) -> None:
        """Count a unit that the loop has read."""
        with _totals_lock:
            self._totals.rows += rows
            self._totals.batches += ends_batch

    def begin_wait(self) -> None:
        """Begin a wait. Reports include its time until now."""
        with _totals_lock:
            self._wait_began, self._is_ahead = time.monotonic(), False

    def continue_wait(self, *, requested: bool) -> None:
        """Continue the wait. Its time until now does not count if the loop works meanwhile.

        TensorFlow requests units ahead of the loop.

        Args:
            requested: the loop has requested a unit that it has not got.
        """
        with _totals_lock:
            if not requested:
                self._wait_began = time.monotonic()
            elif self._is_ahead:
                self._report_wait_first()
            self._is_ahead = not requested

    def end_wait(self, *, has_unit: bool) -> bool:
        """End the wait, also if an error ended it.

        Args:
            has_unit: units or the end of the epoch have arrived.

        Returns:
            Whether a report is due.
        """
        with _totals_lock:
            now = time.monotonic()
            self._waited, self._wait_began = self._waited_until(now), None
            if self._first_unit_at is not None:
                return has_unit and now - self._reported_at > REPORT_SECONDS
            if has_unit:
                self._first_unit_at = now
            return has_unit  # so that the sidecar stops counting this trainer as waiting

    def _waited_until(self, now: float) -> float:
        """Return the seconds of all waits. Startup, before the first unit, is none."""
        if self._wait_began is None or self._first_unit_at is None:
            return self._waited
        return self._waited + now - self._wait_began

    @property
    def seconds_before_first(self) -> float:
        """Return how long this wait has taken, if no unit was read before; otherwise 0."""
        began = self._wait_began
        return 0.0 if began is None or self._first_unit_at else time.monotonic() - began

    @property
    def report_due(self) -> bool:
        """Whether the last report is old, because the loop reads units that arrived together."""
        return time.monotonic() - self._reported_at > _LATEST_REPORT_SECONDS

    def report(self, generation: int, units: int) -> trainer_pb2.Progress:
        """Return a report for the sidecar: `units` units of the generation were read."""
        self._reported_at = time.monotonic()
        self._report_wait_first()
        with _totals_lock:
            waited, wall = self._add_times()
            return trainer_pb2.Progress(
                units=units,
                wait_seconds=waited,
                wall_seconds=wall,
                generation=generation,
                received=self._totals,
            )

    def _add_times(self) -> tuple[float, float]:
        """Add the times since the last call to the totals. Return those of this connection."""
        now, first = time.monotonic(), self._first_unit_at
        waited, wall = self._waited_until(now), now - first if first is not None else 0.0
        self._totals.wait_seconds += waited - self._added[0]
        self._totals.wall_seconds += wall - self._added[1]
        self._added = (waited, wall)
        return self._added

    @property
    def wait_due(self) -> bool:
        """Whether to report the wait, for the first time or again.

        Each gap between two reports is twice as long as the one before. A sidecar that does not
        read for a long time, because it waits for a worker, then gets few: its socket never fills.
        """
        return time.monotonic() >= self._wait_due_at

    def waiting(self, generation: int) -> trainer_pb2.Progress:
        """Return the message of a trainer that still waits for a unit of the generation.

        It has the times until now, unless the loop works. The sidecar adds what passes until the
        next message.
        """
        self._wait_due_at = time.monotonic() + self._wait_gap
        self._wait_gap *= 2
        with _totals_lock:
            waited, wall = self._add_times()
            if self._is_ahead:
                return trainer_pb2.Progress(waiting=True, generation=generation)
            return trainer_pb2.Progress(
                waiting=True,
                generation=generation,
                wait_seconds=waited,
                wall_seconds=wall,
                received=self._totals if wall > 0 else None,
            )
