"""The runner's child processes: started from the main thread, reaped on SIGCHLD.

All on the event loop's thread. That matters: PR_SET_PDEATHSIG fires when the *thread* that
started a child ends. No preexec_fn (it deadlocks where other threads hold locks).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_KIB = 1024


@dataclass
class Child:
    """One started process."""

    name: str
    process: subprocess.Popen[bytes]
    exited: asyncio.Future[int]
    """The exit status, -n where signal n ended it."""
    peak: int = 0
    """Peak resident memory in bytes, as of the last sample."""

    @property
    def pid(self) -> int:
        """Its process id: its own until it has been reaped."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not been reaped yet."""
        return not self.exited.done()

    def signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        if self.alive:
            self.process.send_signal(number)

    def sample_memory(self) -> None:
        """Note the peak memory so far."""
        if self.alive:
            self.peak = max(self.peak, peak_memory(self.pid))


class Children:
    """Starts and reaps. Use as a context manager within a running loop, in the main thread."""

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
            with contextlib.suppress(subprocess.TimeoutExpired):  # in the kernel's hands
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
        """Start `command` in a session of its own; OSError where it cannot be.

        Its output goes to the descriptor `output`, with `pipes` to two new pipes, else it is ours.
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
    """Wait until all of `children` have ended, at most `seconds`; whether they have."""
    waiting = [child.exited for child in children if child.alive]
    if waiting:
        await asyncio.wait(waiting, timeout=seconds)
    return not any(child.alive for child in children)


async def stop(children: Sequence[Child], seconds: float) -> None:
    """SIGTERM all of `children` that live, and SIGKILL after `seconds` what still does."""
    for child in children:
        child.signal(signal.SIGTERM)
    if not await ended_within(children, seconds):
        for child in children:
            child.signal(signal.SIGKILL)
        await ended_within(children, seconds)


def peak_memory(pid: int) -> int:
    """Peak resident memory of a live process in bytes; 0 where it cannot be known."""
    # VmHWM, not getrusage: the latter starts at what the *parent* used when it forked.
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    except (OSError, ValueError, IndexError):
        pass
    return 0
