"""Child processes of the runner: start from the main thread, reap on SIGCHLD.

Everything runs on the event loop's thread, because PR_SET_PDEATHSIG fires when the *thread* that
started a child ends. There is no preexec_fn, which can deadlock if other threads hold locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_KIB = 1024


@dataclass
class Child:
    """One started process."""

    name: str
    process: subprocess.Popen[bytes]
    exited: asyncio.Future[int]
    """The exit status; -n if signal n ended the process."""

    @property
    def pid(self) -> int:
        """The process id. After the process is reaped, another process may get it."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not been reaped."""
        return not self.exited.done()

    def signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.alive:
            self.process.send_signal(number)


class Children:
    """Starts and reaps processes. A context manager for the main thread, in a running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._live: list[Child] = []

    def __enter__(self) -> Children:
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_signal_handler(signal.SIGCHLD)
        for child in self._live:
            child.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # blocked in the kernel
                child.process.wait(timeout=5)

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: Path | None = None,
        stdin: int | None = subprocess.DEVNULL,
        output: int | None = None,
        pipes: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Start `command` in a new session. Raise OSError if that is not possible.

        stdout and stderr go to the descriptor `output` (None: the runner's), or with `pipes` to
        two new pipes. The process inherits the descriptors `pass_fds`.
        """
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE if pipes else output,
            stderr=subprocess.PIPE if pipes else output,
            start_new_session=True,
            pass_fds=pass_fds,
        )
        child = Child(name, process, self._loop.create_future())
        self._live.append(child)
        return child

    def _reap(self) -> None:
        for child in list(self._live):
            status = child.process.poll()
            if status is not None:
                self._live.remove(child)
                if not child.exited.done():
                    child.exited.set_result(status)


async def ended_within(children: Sequence[Child], seconds: float) -> bool:
    """Wait at most `seconds` until all children have ended; return whether they have."""
    waiting = [child.exited for child in children if child.alive]
    if waiting:
        await asyncio.wait(waiting, timeout=seconds)
    return not any(child.alive for child in children)


async def stop(children: Sequence[Child], seconds: float) -> None:
    """Send SIGTERM to the live children, and SIGKILL to those that are alive after `seconds`."""
    for child in children:
        child.signal(signal.SIGTERM)
    if not await ended_within(children, seconds):
        for child in children:
            child.signal(signal.SIGKILL)
        await ended_within(children, seconds)


def end(process: subprocess.Popen[bytes], seconds: float, *files: IO[bytes]) -> None:
    """Send SIGTERM to a process, and SIGKILL after `seconds`. Close its pipes and the files."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, *files):
        if stream is not None:
            stream.close()


def peak_memory(pid: int) -> int:
    """Return the peak resident memory of a live process in bytes; 0 if it is unknown."""
    # VmHWM, because getrusage starts at the memory of the *parent* at the fork.
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    except (OSError, ValueError, IndexError):
        pass
    return 0
