"""Trainers that wait for the rows of an epoch."""

from __future__ import annotations

import threading


class NoTrainer:
    """A trainer that never waits, and has no units on their way."""

    has_unsent = False
    trainer_waits = False

    def flush(self, cancelled: threading.Event) -> None:
        """Do nothing."""

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        """Do nothing."""


class WaitingTrainer(NoTrainer):
    """A trainer that has reported that it waits."""

    trainer_waits = True
