"""The description of a dataset, as others see it: how long it takes, and whether it crashed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import STALL_SECONDS, STEPS, dataset_name
from distributed_input.worker.crash_notes import DESCRIPTION, Computed, Note
from distributed_input.worker.streams.stalls import place_of


class _Running(NamedTuple):
    dataset: str
    step: int  # index in STEPS
    since: float
    thread: int


class WatchedDescribe:
    """Describes datasets, one at a time.

    Args:
        load: imports the module of a draft.
        describe: completes the draft of a job.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        load: Callable[[types_pb2.Job], None],
        describe: Callable[[types_pb2.Job], types_pb2.Job],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load, self._describe, self._clock = load, describe, clock
        self._running: _Running | None = None

    def __call__(self, draft: types_pb2.Job, consumer: str) -> types_pb2.Job:
        """Complete a draft.

        Args:
            draft: the draft of a job.
            consumer: incarnation of the consumer that gets the report if this ends the process.
        """
        name, began, thread = dataset_name(draft), self._clock(), threading.get_ident()
        with Note(Computed(name, 0, DESCRIPTION, consumer)) as note:

            def begin(step: int) -> None:
                self._running = _Running(name, step, began, thread)
                note.begin(step)

            try:
                begin(0)
                self._load(draft)
                begin(1)
                return self._describe(draft)
            finally:
                self._running = None

    def stalled(self) -> list[types_pb2.StalledSplit]:
        """Return the description that takes longer than STALL_SECONDS, if there is one."""
        running = self._running
        if running is None or self._clock() - running.since < STALL_SECONDS:
            return []
        stalled = types_pb2.StalledSplit(
            dataset=running.dataset,
            seconds=self._clock() - running.since,
            at=place_of(running.thread),
            step=STEPS[running.step],
        )
        return [stalled]
