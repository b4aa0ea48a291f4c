"""Checks that a training which ended within an epoch and was resumed used each row once, in order.

A program defines a function that trains for three epochs, or continues from the last checkpoint in
a folder. It passes the rows of each step to a `Ledger`, and takes a checkpoint when it is due.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import distributed_input

ROWS, BATCH, EPOCHS = 103, 10, 3
"""The input: rows with the numbers 0 to 102, whose last step of an epoch has three."""
STEPS = -(-ROWS // BATCH)
STOPS = (1, 4, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS)
"""After how many steps a training ends: within an epoch, and around its end."""


class Ended(Exception):
    """The end of a training, as of its process."""


class Ledger:
    """The rows that a training has used.

    Attributes:
        steps: the numbers of the rows of each step.
        stop: after how many steps the training ends; None: it does not.
    """

    def __init__(self, stop: int | None = None) -> None:
        self.steps: list[list[int]] = []
        self.stop = stop

    @property
    def is_due(self) -> bool:
        """Whether the training ends after this step, which needs a checkpoint."""
        return len(self.steps) == self.stop

    def add(self, numbers: Any) -> None:
        """Add the rows of a step. Raises Ended if the training is to end before it."""
        if len(self.steps) == self.stop:
            raise Ended
        self.steps.append(np.asarray(numbers).tolist())


Train: TypeAlias = Callable[[distributed_input.Input, Path, bool, Ledger], None]
"""Trains on an input, with checkpoints in a folder; whether to resume; what it uses."""


def check(train: Train, name: str = "train") -> None:
    """Compare trainings on an input that ended and resumed with one that did not, and the rows."""
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = run(train, name, Path(folder), resume=False)
    for epoch in range(EPOCHS):
        steps = undisturbed[epoch * STEPS : (epoch + 1) * STEPS]
        assert sorted(row for step in steps for row in step) == list(range(ROWS)), (
            f"epoch {epoch}: {steps}"
        )
    assert len(undisturbed) == EPOCHS * STEPS
    wrong = []
    for stop in STOPS:
        with tempfile.TemporaryDirectory() as folder:
            before = run(train, name, Path(folder), resume=False, stop=stop)
            after = run(train, name, Path(folder), resume=True)
        if before + after != undisturbed:
            wrong.append(f"after {stop} steps: {after} instead of {undisturbed[stop:]}")
    assert not wrong, "\n".join(wrong)
    is_needed = os.environ.get("KERAS_BACKEND") == "tensorflow"
    assert is_needed or "tensorflow" not in sys.modules


def refusal(call: Callable[[], Any]) -> str:
    """Return the message of the error that a call raises."""
    try:
        call()
    except distributed_input.DistributedInputError as error:
        return str(error)
    raise AssertionError("no error")


def run(
    train: Train, name: str, folder: Path, *, resume: bool, stop: int | None = None
) -> list[list[int]]:
    """Train with a connection of its own, as in a new process. Return the rows of its steps."""
    ledger = Ledger(stop)
    with distributed_input.connect(name, timeout=20) as data:
        try:
            train(data, folder, resume, ledger)
        except Ended:
            assert stop is not None
    return ledger.steps
