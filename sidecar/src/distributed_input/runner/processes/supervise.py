"""Keeps one part of the run alive, as a kubelet would."""

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

from distributed_input.runner.display import logfiles
from distributed_input.runner.processes import policy
from distributed_input.runner.processes.children import Child, Children

_READY_POLL_SECONDS = 0.05


class State(enum.Enum):
    """Where a part is; the values are for people."""

    WAITING = "not started"
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "waiting to be restarted"
    STOPPED = "stopped"
    FAILED = "given up"


class PartFailedError(Exception):
    """A part that the runner gave up on. The message says which and why, with its last words."""

    def __init__(self, part: str, message: str, log: Path) -> None:
        super().__init__(message)
        self.part = part
        self.log = log


@dataclass
class Part:
    """One supervised process. `run` it as a task, `stop` it; read the rest."""

    name: str
    command: Callable[[str | None], Sequence[str]]
    """Its command line; gets the address that it had in its last life, None in the first."""
    env: Mapping[str, str]
    log: Path
    ready_file: Path
    of: str = ""
    """The input that it serves; empty: all."""
    cwd: Path | None = None
    limits: policy.Limits = field(default_factory=policy.Limits)
    state: State = State.WAITING
    address: str | None = None
    """host:port of its latest life that was ready."""
    addresses: list[str] = field(default_factory=list)
    """Of all its lives, oldest first."""
    restarts: int = 0
    peak: int = 0
    """Peak resident bytes over all lives, as sampled."""
    child: Child | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it serves."""

    async def run(self, children: Children, say: Callable[[str], None]) -> None:
        """Start, and restart after crashes, until `stop`. Raises PartFailedError on giving up."""
        history = policy.History()
        while self.state is not State.STOPPED:
            status, was_ready = await self._live(children)
            if self._is_stopped():
                return
            now = time.monotonic()
            history, step = policy.after_crash(history, now, status, was_ready, self.limits)
            words = logfiles.last_words(self.log)
            cause = f"{self.name} {ended(status)}" + (f": {words}" if words else "")
            if isinstance(step, policy.GiveUp):
                self.state = State.FAILED
                raise PartFailedError(self.name, f"{cause} [{step.reason}]", self.log)
            self.restarts += 1
            say(f"{cause} (restart {self.restarts} in {step.delay:g} s)")
            self.state = State.BACKING_OFF
            await asyncio.sleep(step.delay)

    async def _live(self, children: Children) -> tuple[int, bool]:
        """One life: (exit status, whether it was ever ready)."""
        with contextlib.suppress(FileNotFoundError):
            self.ready_file.unlink()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            command = self.command(self.address)
            self.child = children.start(self.name, command, self.env, cwd=self.cwd, output=log)
        finally:
            os.close(log)
        self.state = State.STARTING
        exited = self.child.exited
        while not exited.done():
            found = _read_ready(self.ready_file)
            if found is not None:
                self._is_ready(found)
                break
            await asyncio.wait([exited], timeout=_READY_POLL_SECONDS)
        status = await asyncio.shield(exited)
        was_ready = self.ready.is_set()
        self.ready.clear()
        return status, was_ready

    def _is_ready(self, address: str) -> None:
        self.address = address
        self.addresses.append(address)
        if not self._is_stopped():
            self.state = State.READY
        self.ready.set()

    def _is_stopped(self) -> bool:
        return self.state is State.STOPPED

    def sample_memory(self) -> None:
        """Note how much memory it has used at most so far."""
        if self.child is not None:
            self.child.sample_memory()
            self.peak = max(self.peak, self.child.peak)

    def stop(self) -> Child | None:
        """No restart any more; the process, for the caller to end, if one lives."""
        self.sample_memory()
        self.state = State.STOPPED
        return self.child if self.child is not None and self.child.alive else None


def awaited(parts: Sequence[Part]) -> str:
    """Those of `parts` that do not serve yet, with what they are doing."""
    missing = [part for part in parts if not part.ready.is_set()]
    return ", ".join(f"{part.name} ({part.state.value})" for part in missing)


def ended(status: int) -> str:
    """An exit status in words.

    >>> ended(1), ended(-9)
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


def _read_ready(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text())["address"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise PartFailedError(path.stem, f"cannot read {path}: {error}", path) from error
