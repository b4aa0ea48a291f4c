"""One process of the cluster, known by its folder: whoever has the folder can find and stop it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

_STOP_SECONDS = 10.0


class Daemon:
    """A process with `<name>.log` and `<name>.pid` in `folder`.

    tied: the kernel kills it with the process that started it (start it from the main thread), so
    that a test run which is itself killed leaves nothing behind.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        argv: Sequence[str | Path],
        *,
        tied: bool,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._pid_file = folder / f"{name}.pid"
        tie = ("setpriv", "--pdeathsig", "KILL", "--") if tied else ()
        self._argv = [*tie, *(str(part) for part in argv)]
        self._env = env

    def start(self) -> None:
        """Start it; its log is appended to."""
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        # Not subprocess: it warns of what is meant to outlive this process.
        pid = os.posix_spawnp(
            self._argv[0],
            self._argv,
            {**os.environ, **(self._env or {})},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            # A Ctrl-C in the terminal is for the tests, which stop it in order.
            setsid=True,
        )
        self._pid_file.write_text(f"{pid} {_started(pid)}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, by SIGKILL after 10 s; returns when it is gone. Nothing where it does not run."""
        stop_by_file(self._pid_file, number)

    @property
    def pid(self) -> int | None:
        """Of the process, while it runs."""
        return pid_in(self._pid_file)

    def alive(self) -> bool:
        """Whether it runs."""
        return self.pid is not None

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def pid_in(pid_file: Path) -> int | None:
    """The process that a pid file names, while that very process lives."""
    try:
        pid, started = pid_file.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    # The kernel gives numbers out again; the start time tells the two apart.
    return int(pid) if _started(int(pid)) == started != "" else None


def stop_by_file(pid_file: Path, number: signal.Signals = signal.SIGTERM) -> None:
    """End the process that a pid file names, by SIGKILL after 10 s, and remove the file."""
    pid = pid_in(pid_file)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            end(pid, number)
    pid_file.unlink(missing_ok=True)


def end(pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Signal a process, then SIGKILL after 10 s; returns when it is gone.

    Raises ProcessLookupError where it was gone before.
    """
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        signal.pidfd_send_signal(handle, number)
        if not poll.poll(_STOP_SECONDS * 1000):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            poll.poll(_STOP_SECONDS * 1000)
    finally:
        os.close(handle)
    with contextlib.suppress(ChildProcessError):  # another process started it, and reaps it
        os.waitpid(pid, os.WNOHANG)


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where it has ended."""
    try:
        # The name, in brackets, may hold spaces and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]
