"""The trainer commands of a run, each in a `process_wrapper`, from their start to their end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from distributed_input.runner import process_wrapper
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.plan import Plan, trainer_env
from distributed_input.runner.processes.children import Child, Children, peak_memory
from distributed_input.runner.processes.run_events import RunEvents, due_signal
from distributed_input.runner.processes.supervised_process import describe_exit
from distributed_input.runtime.addresses import free_ports

_READ_BYTES = 64 * 1024
_OUTPUT_END_SECONDS = 2.0
_POLL_SECONDS = 0.1


class Trainer:
    """One trainer command and its wrapper. The wrapper's exit status is the trainer's."""

    def __init__(self, index: int, child: Child, lifeline: int) -> None:
        self.index = index
        self.child = child
        self.forwarding: list[asyncio.Task[None]] = []
        self.peak_bytes = 0
        """Peak resident memory of the command's own process, as sampled."""
        self._lifeline: int | None = lifeline
        self._command: psutil.Process | None = None

    def send(self, number: int) -> None:
        """Send START to the wrapper, or a signal to the command's process group.

        SIGKILL goes to all processes of the command.
        """
        if self._lifeline is not None:
            with contextlib.suppress(OSError):  # the wrapper has ended
                os.write(self._lifeline, bytes([number]))

    def close(self) -> None:
        """End the wrapper, and the command if it still runs."""
        self.send(process_wrapper.QUIT)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def sample_memory(self) -> None:
        """Update the peak memory."""
        with contextlib.suppress(psutil.Error):
            if self._command is None:
                started = psutil.Process(self.child.pid).children()
                # The others are orphans, or on macOS the guard.
                self._command = min(started, key=psutil.Process.create_time, default=None)
            if self._command is not None:
                self.peak_bytes = max(self.peak_bytes, peak_memory(self._command.pid))


def start_wrappers(
    children: Children, plan: Plan, folders: RunFolders, env: dict[str, str], live: bool
) -> list[Trainer]:
    """Start the wrappers of all ranks of all trainers. The commands start at `Trainer.send`.

    Call it before any other process starts. After it, killing the runner leaves nothing behind.
    `live` means that stderr is a terminal with live lines, which the wrapper resets in that case.
    """
    ports = free_ports(plan.consumers + 1) if plan.consumers > 1 else []
    trainers = []
    for index in range(plan.consumers):
        read_end, write_end = os.pipe()
        own_env = trainer_env(env, plan, folders, index, ports)
        own_env[process_wrapper.MARK_ENV] = process_wrapper.mark(folders.run, f"wrapper-{index}")
        options = process_wrapper.Options(
            command=plan.command,
            lifeline=read_end,
            run=folders.run,
            name=f"trainer-{index}",
            packages=str(Path(psutil.__file__).parents[1]),
            remove=[str(folder) for folder in dict.fromkeys((folders.shared, folders.path))],
            live=live,
        )
        try:
            child = children.start(
                options.name,
                process_wrapper.command(options),
                own_env,
                # The first trainer has the runner's streams. The output of others gets a prefix.
                stdin=None if index == 0 else asyncio.subprocess.DEVNULL,
                pipes=index > 0,
                pass_fds=(read_end,),
            )
        finally:
            os.close(read_end)
        trainers.append(Trainer(index, child, write_end))
    return trainers


async def run_trainers(
    all_trainers: Sequence[Trainer], events: RunEvents, grace: float, log: Callable[[str], None]
) -> int:
    """Start the trainers and wait until all have ended. Return the exit status of the first one
    that failed; 0 if none did.

    If `events` requests it, the runner gave up on a process, or one trainer failed, the others
    get a signal and `grace` seconds to end.
    """
    for trainer in all_trainers:
        if trainer.index > 0:
            _forward_output(trainer)
        trainer.send(process_wrapper.START)
    failed = 0
    sent = 0
    while running := [trainer for trainer in all_trainers if trainer.child.alive]:
        sent = _send_due_signal(running, events.requests, sent, grace, log)
        await _next_event(running, events)
        for trainer in running:
            if trainer.child.alive or not (status := trainer.child.exited.result()):
                continue
            # The first failure is the cause. The others follow from it.
            failed = failed or exit_status(status)
            if not events.requests and len(running) > 1:
                # The others would wait for it in the next collective operation.
                log(f"{trainer.child.name} {describe_exit(status)}: stopping the other trainers")
                events.terminate(signal.SIGTERM)
        if events.failure is not None and not events.requests:
            log(f"{events.failure}: stopping the trainer")
            events.terminate(signal.SIGTERM)
    await _output_ended(all_trainers)
    return failed


async def _next_event(running: Sequence[Trainer], events: RunEvents) -> None:
    changed = asyncio.ensure_future(events.changed.wait())
    awaited: list[asyncio.Future[Any]] = [changed, *(one.child.exited for one in running)]
    try:
        await asyncio.wait(
            awaited,
            timeout=_POLL_SECONDS if events.requests else None,
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        changed.cancel()
    events.changed.clear()


def _send_due_signal(
    running: Sequence[Trainer],
    requests: Sequence[tuple[int, float]],
    sent: int,
    grace: float,
    log: Callable[[str], None],
) -> int:
    """Send the signal that is due, unless it was sent; return the signal that was sent last."""
    if not requests or sent == signal.SIGKILL:
        return sent
    due = due_signal(requests, time.monotonic(), grace)
    if due == sent:
        return sent
    if due != requests[0][0]:
        log(f"the trainer has not ended: sending {signal.Signals(due).name}")
    for trainer in running:
        trainer.send(due)
        trainer.send(signal.SIGCONT)  # a stopped process would not handle the signal
    return due


def write_all(descriptor: int, data: bytes) -> None:
    """Write to a terminal or pipe. If its reader has closed it, that must not end the training."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


def _forward_output(trainer: Trainer) -> None:
    """Copy a trainer's piped lines to the runner's stdout and stderr, as "[index] line"."""
    process = trainer.child.process
    for pipe, descriptor in ((process.stdout, 1), (process.stderr, 2)):
        if pipe is not None:
            copying = _copy_lines(pipe, descriptor, f"[{trainer.index}] ".encode())
            trainer.forwarding.append(asyncio.ensure_future(copying))


async def _output_ended(trainers: Sequence[Trainer]) -> None:
    """Wait until the output of the trainers that ended has been copied."""
    tasks = [task for trainer in trainers for task in trainer.forwarding]
    if tasks:
        # With a limit, because another process may hold the pipe's other end open.
        await asyncio.wait(tasks, timeout=_OUTPUT_END_SECONDS)
    for task in tasks:
        task.cancel()


async def _copy_lines(pipe: object, descriptor: int, prefix: bytes) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        rest = b""
        while data := await reader.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _READ_BYTES:  # bounds the memory of a line without an end
                lines, rest = [*lines, rest], b""
            if lines:
                write_all(descriptor, b"".join(prefix + line + b"\n" for line in lines))
        if rest:
            write_all(descriptor, prefix + rest + b"\n")
    finally:
        transport.close()


def exit_status(status: int) -> int:
    """Return a child's status as a shell reports it: 128 + n for signal n."""
    return 128 - status if status < 0 else status
