"""The trainer commands of a run, each in a `process_wrapper`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from distributed_input.runner import process_wrapper
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.plan import Plan, RunFiles, trainer_env
from distributed_input.runner.processes.children import Child, Children, peak_memory
from distributed_input.runtime.addresses import free_ports

_READ_BYTES = 64 * 1024
_OUTPUT_END_SECONDS = 2.0


class Trainer:
    """One trainer command and its wrapper. The wrapper's exit status is the trainer's."""

    def __init__(self, index: int, child: Child, lifeline: int, pid_file: Path) -> None:
        self.index = index
        self.child = child
        self.forwarding: list[asyncio.Task[None]] = []
        self.peak_bytes = 0
        """Peak resident memory of the command's own process, as sampled."""
        self._lifeline: int | None = lifeline
        self._pid_file = pid_file

    def start(self) -> None:
        """Start the command."""
        self._send(process_wrapper.START)

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group; SIGKILL goes to all its processes."""
        self._send(number)

    def close(self) -> None:
        """End the wrapper, and the command if it still runs."""
        self._send(process_wrapper.QUIT)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def sample_memory(self) -> None:
        """Update the peak memory."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads(self._pid_file.read_text())["pid"])
            self.peak_bytes = max(self.peak_bytes, peak_memory(pid))

    def _send(self, number: int) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(OSError):  # the wrapper has ended
                os.write(self._lifeline, bytes([number]))


def start_wrappers(
    children: Children, plan: Plan, folders: RunFolders, env: dict[str, str], live: bool
) -> list[Trainer]:
    """Start the wrappers of all trainers. The commands start at `Trainer.start`.

    Call it before any other process starts. After it, killing the runner leaves nothing behind.
    `live` means that stderr is a terminal with live lines, which the wrapper resets in that case.
    """
    ports = free_ports(plan.trainers) if plan.trainers > 1 else []
    trainers = []
    for index in range(plan.trainers):
        pid_file = folders.path / f"trainer-{index}.pid"
        read_end, write_end = os.pipe()
        own_env = trainer_env(env, plan, RunFiles(folders), index, ports)
        own_env[process_wrapper.MARK_ENV] = process_wrapper.mark(folders.run, f"wrapper-{index}")
        try:
            child = children.start(
                f"trainer-{index}",
                _wrapper_command(plan, folders, index, read_end, pid_file, live),
                own_env,
                # The first trainer has the runner's streams. The output of others gets a prefix.
                stdin=None if index == 0 else asyncio.subprocess.DEVNULL,
                pipes=index > 0,
                pass_fds=(read_end,),
            )
        finally:
            os.close(read_end)
        trainers.append(Trainer(index, child, write_end, pid_file))
    return trainers


def _wrapper_command(
    plan: Plan, folders: RunFolders, index: int, lifeline: int, pid_file: Path, live: bool
) -> list[str]:
    removed = dict.fromkeys((folders.shared, folders.path))
    return [
        *(sys.executable, "-I", "-S", process_wrapper.__file__),
        *("--packages", str(Path(psutil.__file__).parents[1]), "--lifeline", str(lifeline)),
        *("--run", folders.run, "--name", f"trainer-{index}"),
        *("--pid-file", str(pid_file)),
        *(word for folder in removed for word in ("--remove", str(folder))),
        *(("--live",) if live else ()),
        *("--", *plan.command),
    ]


def forward_output(trainer: Trainer, write: Callable[[int, bytes], None]) -> None:
    """Copy a trainer's piped lines to the runner's stdout and stderr, as "[index] line"."""
    process = trainer.child.process
    for pipe, descriptor in ((process.stdout, 1), (process.stderr, 2)):
        if pipe is not None:
            copying = _copy_lines(pipe, descriptor, f"[{trainer.index}] ".encode(), write)
            trainer.forwarding.append(asyncio.ensure_future(copying))


async def output_ended(trainers: Sequence[Trainer]) -> None:
    """Wait until the output of the trainers that ended has been copied."""
    tasks = [task for trainer in trainers for task in trainer.forwarding]
    if tasks:
        # With a limit, because another process may hold the pipe's other end open.
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
            if len(rest) > _READ_BYTES:  # bounds the memory of a line without an end
                lines, rest = [*lines, rest], b""
            if lines:
                write(descriptor, b"".join(prefix + line + b"\n" for line in lines))
        if rest:
            write(descriptor, prefix + rest + b"\n")
    finally:
        transport.close()


def exit_status(status: int) -> int:
    """Return a child's status as a shell reports it: 128 + n for signal n."""
    return 128 - status if status < 0 else status
