"""One process of the cluster. Any program that has its folder can find and stop it."""

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

    die_with_parent: whether the kernel kills it when the process that started it ends, so that a
    killed test run leaves no processes. Start it from the main thread then.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        argv: Sequence[str | Path],
        *,
        die_with_parent: bool,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._pid_file = folder / f"{name}.pid"
        self._argv = [str(part) for part in argv]
        self._die_with_parent = die_with_parent
        self._env = env

    def start(self) -> None:
        """Start the process. Append to its log."""
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        argv = [*(_until(os.getpid()) if self._die_with_parent else ()), *self._argv]
        # Not subprocess: it warns about children that outlive this process.
        pid = os.posix_spawnp(
            argv[0],
            argv,
            {**os.environ, **(self._env or {})},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            # Ctrl-C in the terminal must reach only the tests, which stop the processes in order.
            setsid=True,
        )
        self._pid_file.write_text(f"{pid} {_start_time(pid)}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process, with SIGKILL after 10 s. Return when it has exited."""
        stop_by_file(self._pid_file, number)

    @property
    def pid(self) -> int | None:
        """Return the process ID, or None if the process does not run."""
        return pid_in(self._pid_file)

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.pid is not None

    def wait_exit(self, seconds: float) -> bool:
        """Return whether the process exits within `seconds`."""
        pid = self.pid
        if pid is None:
            return True
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return _exits(handle, seconds)
        finally:
            os.close(handle)

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


def _until(parent: int) -> tuple[str, ...]:
    """Return the words before a command that let it end when its parent ends."""
    # The parent can end before the kernel knows what to do then: so compare the parent afterwards.
    check = '[ "$PPID" = "$0" ] && exec "$@"'
    return ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", check, str(parent))


def pid_in(pid_file: Path) -> int | None:
    """Return the process ID in a pid file, or None if that process has exited."""
    try:
        pid, start_time = pid_file.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    # The kernel reuses process IDs. The start time identifies the process.
    return int(pid) if _start_time(int(pid)) == start_time != "" else None


def stop_by_file(pid_file: Path, number: signal.Signals = signal.SIGTERM) -> None:
    """Stop the process in a pid file, with SIGKILL after 10 s, and remove the file."""
    pid = pid_in(pid_file)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            terminate(pid, number)
    pid_file.unlink(missing_ok=True)


def terminate(pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to a process, then SIGKILL after 10 s. Return when it has exited.

    Raises ProcessLookupError if it does not exist.
    """
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, number)
        if not _exits(handle, _STOP_SECONDS):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _exits(handle, _STOP_SECONDS)
    finally:
        os.close(handle)
    with contextlib.suppress(ChildProcessError):  # another process is the parent and reaps it
        os.waitpid(pid, os.WNOHANG)


def _exits(handle: int, seconds: float) -> bool:
    """Return whether the process of a pidfd exits within `seconds`."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _start_time(pid: int) -> str:
    """Return a process's start time in kernel ticks, or "" if it has exited."""
    try:
        # The name is in brackets and may contain spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]
