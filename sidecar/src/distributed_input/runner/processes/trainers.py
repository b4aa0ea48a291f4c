"""The trainer commands of a run, each behind its guard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from distributed_input.runner import plan
from distributed_input.runner.folders import Folders
from distributed_input.runner.processes import guard
from distributed_input.runner.processes.children import Child, Children, peak_memory

_READ_BYTES = 64 * 1024
_OUTPUT_END_SECONDS = 2.0


class Trainer:
    """One trainer command and its guard. The guard's exit status is the trainer's."""

    def __init__(self, index: int, child: Child, lifeline: int, pid_file: Path) -> None:
        self.index = index
        self.child = child
        self.forwarding: list[asyncio.Task[None]] = []
        self.peak = 0
        """Peak resident bytes of the command's own process, as sampled."""
        self._lifeline: int | None = lifeline
        self._pid_file = pid_file

    def start(self) -> None:
        """Let the guard start the command."""
        self._tell(guard.START)

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group; SIGKILL to all that came of it."""
        self._tell(number)

    def dismiss(self) -> None:
        """End the guard, and the command if it still runs."""
        self._tell(guard.QUIT)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def sample_memory(self) -> None:
        """Note how much memory the command has used at most so far."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(self._pid_file.read_text())["pid"])
            self.peak = max(self.peak, peak_memory(pid))

    def _tell(self, number: int) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(OSError):  # the guard has ended
                os.write(self._lifeline, bytes([number]))


def start_guards(
    children: Children, what: plan.Plan, folders: Folders, env: dict[str, str], live: bool
) -> list[Trainer]:
    """Start the guards of all trainers; the commands wait for `Trainer.start`.

    First of all processes, so that from then on the runner can be killed at any time. `live`:
    stderr is a terminal with live lines, to be reset after such a death.
    """
    ports = free_ports(what.trainers) if what.trainers > 1 else []
    files = plan.Files(folders)
    trainers = []
    for index in range(what.trainers):
        pid_file = folders.path / f"trainer-{index}.pid"
        read_end, write_end = os.pipe()
        command = [sys.executable, "-I", "-S", guard.__file__, "--lifeline", str(read_end)]
        command += ["--run", folders.run, "--name", f"trainer-{index}"]
        command += ["--pid-file", str(pid_file)]
        for folder in dict.fromkeys((folders.shared, folders.path)):
            command += ["--remove", str(folder)]
        command += ["--live"] if live else []
        own = plan.trainer_env(env, what, files, index, ports)
        own[guard.MARK_ENV] = guard.mark(folders.run, f"guard-{index}")
        try:
            child = children.start(
                f"trainer-{index}",
                [*command, "--", *what.command],
                own,
                # The first is as if we were not there; the others' output gets a prefix.
                stdin=None if index == 0 else asyncio.subprocess.DEVNULL,
                pipes=index > 0,
                pass_fds=(read_end,),
            )
        finally:
            os.close(read_end)
        trainers.append(Trainer(index, child, write_end, pid_file))
    return trainers


def forward_output(trainer: Trainer, write: Callable[[int, bytes], None]) -> None:
    """Copy a piped trainer's lines to our stdout and stderr, as "[index] line"."""
    process = trainer.child.process
    for pipe, descriptor in ((process.stdout, 1), (process.stderr, 2)):
        if pipe is not None:
            copying = _copy_lines(pipe, descriptor, f"[{trainer.index}] ".encode(), write)
            trainer.forwarding.append(asyncio.ensure_future(copying))


async def output_ended(trainers: Sequence[Trainer]) -> None:
    """Wait until what ended trainers wrote has been copied."""
    tasks = [task for trainer in trainers for task in trainer.forwarding]
    if tasks:
        # With a limit: somebody else may hold the pipe's other end open.
        await asyncio.wait(tasks, timeout=_OUTPUT_END_SECONDS)
    for task in tasks:
        task.cancel()


async def _copy_lines(
    pipe: object, descriptor: int, prefix: bytes, write: Callable[[int, bytes], None]
) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        rest = b""
        while data := await reader.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _READ_BYTES:  # a line without end must not grow for ever
                lines, rest = [*lines, rest], b""
            if lines:
                write(descriptor, b"".join(prefix + line + b"\n" for line in lines))
        if rest:
            write(descriptor, prefix + rest + b"\n")
    finally:
        transport.close()


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback interface that nobody held a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def exit_status(status: int) -> int:
    """A child's status as a shell gives it: 128 + n for signal n."""
    return 128 - status if status < 0 else status
