"""Stays with the trainers from their start to the end of the last."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from distributed_input.runner.processes import policy, trainers
from distributed_input.runner.processes.events import Events
from distributed_input.runner.processes.supervise import ended
from distributed_input.runner.processes.trainers import Trainer

_LOOK_SECONDS = 0.1


async def attend(
    all_trainers: Sequence[Trainer], events: Events, grace: float, say: Callable[[str], None]
) -> int:
    """Start the trainers and wait until all have ended; the exit status of the first that failed.

    They are told to end when `events` asks for it, a part was given up, or one of them failed;
    `grace` is their time for it in seconds.
    """
    for trainer in all_trainers:
        if trainer.index > 0:
            trainers.forward_output(trainer, _write_all)
        trainer.start()
    failed = 0
    sent = 0
    while running := [trainer for trainer in all_trainers if trainer.child.alive]:
        sent = _urge(running, events.ending, sent, grace, say)
        await _next_event(running, events)
        for trainer in running:
            if trainer.child.alive or not (status := trainer.child.exited.result()):
                continue
            # The first to fail is the cause, the others are its effect.
            failed = failed or trainers.exit_status(status)
            if events.ending is None and len(running) > 1:
                # The others would wait for it in the next collective.
                say(f"{trainer.child.name} {ended(status)}: stopping the others")
                events.end(signal.SIGTERM)
        if events.failure is not None and events.ending is None:
            say(f"{events.failure}: stopping the trainer")
            events.end(signal.SIGTERM)
    await trainers.output_ended(all_trainers)
    return failed


async def _next_event(running: Sequence[Trainer], events: Events) -> None:
    news = asyncio.ensure_future(events.news.wait())
    awaited: list[asyncio.Future[Any]] = [news, *(one.child.exited for one in running)]
    try:
        await asyncio.wait(
            awaited,
            timeout=None if events.ending is None else _LOOK_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        news.cancel()
    events.news.clear()


def _urge(
    running: Sequence[Trainer],
    ending: policy.Ending | None,
    sent: int,
    grace: float,
    say: Callable[[str], None],
) -> int:
    """Send the trainers the signal that is due, once; the signal that was sent last."""
    if ending is None or sent == signal.SIGKILL:
        return sent
    due = policy.signal_due(ending, time.monotonic(), grace)
    if due == sent:
        return sent
    if due != ending.signal:
        say(f"the trainer has not ended: sending {signal.Signals(due).name}")
    for trainer in running:
        trainer.signal(due)
        trainer.signal(signal.SIGCONT)  # a stopped process would never see it
    return due


def _write_all(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more
        while data:
            data = data[os.write(descriptor, data) :]
