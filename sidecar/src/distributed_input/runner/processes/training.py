"""The trainers from their start to the end of the last."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from distributed_input.runner.processes import trainers
from distributed_input.runner.processes.run_events import RunEvents
from distributed_input.runner.processes.supervised_process import describe_exit
from distributed_input.runner.processes.termination import Termination, due_signal
from distributed_input.runner.processes.trainers import Trainer

_POLL_SECONDS = 0.1


async def run_trainers(
    all_trainers: Sequence[Trainer], events: RunEvents, grace: float, log: Callable[[str], None]
) -> int:
    """Start the trainers and wait until all have ended.

    If `events` requests it, the runner gave up on a process, or one trainer failed, the others
    get a signal and `grace` seconds to end.

    Returns:
        The exit status of the first trainer that failed; 0 if none did.
    """
    for trainer in all_trainers:
        if trainer.index > 0:
            trainers.forward_output(trainer, _write_all)
        trainer.start()
    failed = 0
    sent = 0
    while running := [trainer for trainer in all_trainers if trainer.child.alive]:
        sent = _send_due_signal(running, events.termination, sent, grace, log)
        await _next_event(running, events)
        for trainer in running:
            if trainer.child.alive or not (status := trainer.child.exited.result()):
                continue
            # The first failure is the cause. The others follow from it.
            failed = failed or trainers.exit_status(status)
            if events.termination is None and len(running) > 1:
                # The others would wait for it in the next collective operation.
                log(f"{trainer.child.name} {describe_exit(status)}: stopping the other trainers")
                events.terminate(signal.SIGTERM)
        if events.failure is not None and events.termination is None:
            log(f"{events.failure}: stopping the trainer")
            events.terminate(signal.SIGTERM)
    await trainers.output_ended(all_trainers)
    return failed


async def _next_event(running: Sequence[Trainer], events: RunEvents) -> None:
    changed = asyncio.ensure_future(events.changed.wait())
    awaited: list[asyncio.Future[Any]] = [changed, *(one.child.exited for one in running)]
    try:
        await asyncio.wait(
            awaited,
            timeout=None if events.termination is None else _POLL_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        changed.cancel()
    events.changed.clear()


def _send_due_signal(
    running: Sequence[Trainer],
    termination: Termination | None,
    sent: int,
    grace: float,
    log: Callable[[str], None],
) -> int:
    """Send the signal that is due, unless it was sent; return the signal that was sent last."""
    if termination is None or sent == signal.SIGKILL:
        return sent
    due = due_signal(termination, time.monotonic(), grace)
    if due == sent:
        return sent
    if due != termination.signal:
        log(f"the trainer has not ended: sending {signal.Signals(due).name}")
    for trainer in running:
        trainer.signal(due)
        trainer.signal(signal.SIGCONT)  # a stopped process would not handle the signal
    return due


def _write_all(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the reader has closed the pipe
        while data:
            data = data[os.write(descriptor, data) :]
