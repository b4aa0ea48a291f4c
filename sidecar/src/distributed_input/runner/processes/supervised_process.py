"""One process that the runner restarts after a crash, as a kubelet would."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distributed_input.runner import process_logs
from distributed_input.runner.processes.children import Child, Children, peak_memory
from distributed_input.runtime.args import EXIT_CONFIG

EXIT_PROCESS_FAILED = 3
"""Exit status of a run that gave up on a process."""
_READY_POLL_SECONDS = 0.05


class ProcessState(enum.Enum):
    """The state of a process. The values appear in messages."""

    WAITING = "not started"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "waiting for its restart"
    STOPPED = "stopped"
    FAILED = "failed"


class ProcessFailedError(Exception):
    """The runner gave up on a process. The message names the process, the reason and the cause."""

    def __init__(self, message: str, log: Path) -> None:
        super().__init__(message)
        self.log = log


@dataclass
class CrashHistory:
    """The crashes of one process, and the limits of its restarts. Times in seconds."""

    first_delay: float = 0.25
    max_delay: float = 8.0
    max_crashes: int = 5
    """Number of crashes within `window` before the runner gives up."""
    window: float = 60.0
    max_unready: int = 3
    """Number of consecutive starts that end before the process is ready."""
    crashes: list[float] = field(default_factory=list)
    """Times of the crashes within the window, oldest first."""
    unready: int = 0
    """Consecutive starts that ended before the process was ready."""
    ever_ready: bool = False

    def after_exit(self, now: float, status: int, was_ready: bool) -> float | str:
        """Add the end of the process with `status` at `now`. Return the seconds until its next
        start, or why to give up.

        The delay doubles with each crash within the window, so it is short again after a time
        without crashes.
        """
        self.crashes = [*(at for at in self.crashes if now - at < self.window), now]
        self.ever_ready = self.ever_ready or was_ready
        self.unready = 0 if was_ready else self.unready + 1
        if status == EXIT_CONFIG and not self.ever_ready:
            return "it cannot start with this configuration"
        if self.unready >= self.max_unready:
            return f"it ended {self.unready} times in a row before it was ready"
        if len(self.crashes) > self.max_crashes:
            return f"it crashed {len(self.crashes)} times within {self.window:g} s"
        return min(self.max_delay, self.first_delay * 2.0 ** (len(self.crashes) - 1))


@dataclass
class SupervisedProcess:
    """One process of the run. Await `run` in a task, and end it with `stop`."""

    name: str
    command: Callable[[], Sequence[str]]
    """Returns the command of the next start."""
    env: Mapping[str, str]
    log: Path
    ready_file: Path
    input_name: str = ""
    """The input that it belongs to; empty: all inputs."""
    cwd: Path | None = None
    history: CrashHistory = field(default_factory=CrashHistory)
    state: ProcessState = ProcessState.WAITING
    addresses: list[str] = field(default_factory=list)
    """host:port of each start that became ready, oldest first."""
    restarts: int = 0
    peak_bytes: int = 0
    """Peak resident memory over all starts, as sampled."""
    child: Child | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the process is ready."""

    async def run(self, children: Children, log: Callable[[str], None]) -> None:
        """Start the process, and restart it after crashes, until `stop`.

        Raises:
            ProcessFailedError: it crashed too often.
        """
        while self.state is not ProcessState.STOPPED:
            status, was_ready = await self._run_once(children)
            if self._is_stopped():
                return
            step = self.history.after_exit(time.monotonic(), status, was_ready)
            cause = process_logs.cause_of_exit(self.log)
            message = f"{self.name} {describe_exit(status)}" + (f": {cause}" if cause else "")
            if isinstance(step, str):
                self.state = ProcessState.FAILED
                raise ProcessFailedError(f"{message} [{step}]", self.log)
            self.restarts += 1
            log(f"{message} (restart {self.restarts} in {step:g} s)")
            self.state = ProcessState.BACKING_OFF
            await asyncio.sleep(step)

    async def _run_once(self, children: Children) -> tuple[int, bool]:
        """Run the process until it ends; return its exit status and whether it became ready."""
        with contextlib.suppress(FileNotFoundError):
            self.ready_file.unlink()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self.child = children.start(
                self.name, self.command(), self.env, cwd=self.cwd, output=log
            )
        finally:
            os.close(log)
        self.state = ProcessState.STARTING
        exited = self.child.exited
        while not exited.done():
            address = _read_ready_file(self.ready_file)
            if address is not None:
                self.addresses.append(address)
                if not self._is_stopped():
                    self.state = ProcessState.READY
                self.ready.set()
                break
            await asyncio.wait([exited], timeout=_READY_POLL_SECONDS)
        status = await asyncio.shield(exited)
        was_ready = self.ready.is_set()
        self.ready.clear()
        return status, was_ready

    def _is_stopped(self) -> bool:
        return self.state is ProcessState.STOPPED

    def sample_memory(self) -> None:
        """Update the peak memory."""
        if self.child is not None and self.child.alive:
            self.peak_bytes = max(self.peak_bytes, peak_memory(self.child.pid))

    def stop(self) -> Child | None:
        """Disable restarts; return the process if it is alive, so that the caller can end it."""
        self.sample_memory()
        self.state = ProcessState.STOPPED
        return self.child if self.child is not None and self.child.alive else None


def unready(processes: Sequence[SupervisedProcess]) -> str:
    """Return the names and states of the processes that are not ready; "" if all are."""
    missing = [process for process in processes if not process.ready.is_set()]
    return ", ".join(f"{process.name} ({process.state.value})" for process in missing)


def describe_exit(status: int) -> str:
    """Describe an exit status for messages.

    >>> describe_exit(1), describe_exit(-9)
    ('ended with status 1', 'was killed by SIGKILL (out of memory?)')
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (out of memory?)" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


def _read_ready_file(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["address"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise ProcessFailedError(f"cannot read {path}: {error}", path) from error
