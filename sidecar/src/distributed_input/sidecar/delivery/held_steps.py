"""The complete steps of an epoch that wait until all consumers have a full step.

With `remainder: drop`, a step is sent only if every consumer has all rows of its own part. The
facts that show it take a while to arrive. Meanwhile, the sidecar assembles further steps in free
slots.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distributed_input.api.proto import trainer_pb2
from distributed_input.sidecar.delivery.unit_writer import UnitWriter
from distributed_input.sidecar.steps.row_source import WaitingTrainer
from distributed_input.sidecar.steps.step_barrier import StepBarrier

MOST_STEPS = 16  # a consumer far ahead would take the workers' time from those it waits for


class OthersEnded(Exception):
    """Another consumer has no full step any more, so that no further step is sent."""


@dataclass(frozen=True)
class FullStep:
    """A step of which all rows are in slots.

    Attributes:
        number: steps of this pass before it.
        writers: writers of its units.
        after: position after it, if it is sent along.
    """

    number: int
    writers: Sequence[UnitWriter]
    after: trainer_pb2.Position | None


class HeldSteps:
    """Full steps in their order. As a `WaitingTrainer`, it sends those that all consumers have.

    Args:
        trainer: gets the units.
        send: function that sends the units of a step.
    """

    def __init__(self, trainer: WaitingTrainer, send: Callable[[FullStep], None]) -> None:
        self._trainer = trainer
        self._send = send
        self._barrier: StepBarrier | None = None
        self._steps: deque[FullStep] = deque()

    def add(self, step: FullStep, barrier: StepBarrier) -> None:
        """Hold a step, and send all that the barrier lets pass now. Wait if too many are held.

        Raises:
            OthersEnded: a step that is held is not sent, because not all consumers have it.
            UnavailableError: the facts of the other consumers did not arrive in time.
        """
        self._barrier = barrier
        self._steps.append(step)
        self._send_agreed()
        while len(self._steps) > MOST_STEPS:
            self.send_one()

    def __bool__(self) -> bool:
        """Whether a step is held."""
        return bool(self._steps)

    def has(self, writer: UnitWriter) -> bool:
        """Return whether a step with this writer is held."""
        return bool(self._steps) and writer in self._steps[-1].writers

    def send_one(self) -> None:
        """Wait until all consumers have the oldest step, and send it.

        Raises:
            OthersEnded: not all consumers have it.
            UnavailableError: the facts of the other consumers did not arrive in time.
        """
        if self._steps and self._barrier is not None:
            # The wait for facts calls `flush`, which may send the step.
            self._barrier.await_full_step(self._steps[0].number)
            self._send_agreed()

    def send_all(self) -> None:
        """Wait until all consumers have all steps that are held, and send them, as `send_one`."""
        while self._steps:
            self.send_one()

    def abandon(self) -> None:
        """Release the slots of all steps."""
        while self._steps:
            for writer in self._steps.popleft().writers:
                writer.abandon()

    def _send_agreed(self) -> None:
        while self._steps and (full := self._oldest_is_full()) is not None:
            if not full:
                raise OthersEnded
            self._send(self._steps.popleft())

    def _oldest_is_full(self) -> bool | None:
        if not self._steps or self._barrier is None:
            return None
        return self._barrier.all_have_full_step(self._steps[0].number)

    # The trainer, for the reader of the epoch.

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` has something to do."""
        return self._trainer.has_unsent or self._oldest_is_full() is not None

    @property
    def trainer_waits(self) -> bool:
        """Whether the trainer has reported that it waits."""
        return self._trainer.trainer_waits

    def flush(self, cancelled: threading.Event) -> None:
        """Send the steps that all consumers have, and the units that are kept back.

        Raises:
            OthersEnded: the next step is not sent, because not all consumers have it.
        """
        self._send_agreed()
        self._trainer.flush(cancelled)

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        """Send the trainer what is waited for, if it waits."""
        self._trainer.report_wait(what, cancelled)
