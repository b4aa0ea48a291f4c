"""The parent process of one trainer command, which ends the trainer if the runner dies.

The wrapper reads commands from a pipe. Only the runner holds the other end. START starts the
trainer, QUIT ends wrapper and trainer, and any other byte is the number of a signal for the
trainer's process group.

End of file means that the runner has ended, for whatever reason. The wrapper then kills every
process of the run and removes the run's folders. It finds the processes by the mark in their
environment, which survives a change of group or session, and as descendants, which survives a
cleared environment because the wrapper is a subreaper. The wrapper's exit status, or the signal
that ends it, is the trainer's.

psutil lists the processes. It does not do the rest: marks, a subreaper, and the end of the trainer
with its wrapper, however that ends. macOS has no subreapers. There, a guard process kills the
trainer if the wrapper is killed. A process that leaves both the group and the environment of its
trainer then stays.

`python -I -S` runs this file by its path, so that neither the user's folder nor PYTHONPATH can
change what it imports. It therefore is one file, and imports only the standard library, and psutil
from the folder that the runner has it from.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence

MARK_ENV = "DISTRIBUTED_INPUT_RUN"
"""Equals `api.environment.RUN_MARK_ENV`, which this file cannot import. A test compares them."""
START = 0
QUIT = 255
EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.02
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RESET_SCROLLING = b"\0337\033[r\0338\r\n\033[J"


def mark(run: str, name: str) -> str:
    """Return the value of MARK_ENV for process `name` of run `run`."""
    return f"{run}:{name}"


def marked(prefix: str) -> Iterator[tuple[int, str]]:
    """Yield (pid, mark) of every live process of this user whose mark starts with `prefix`."""
    import psutil

    for process in psutil.process_iter(["environ"]):
        found = (process.info["environ"] or {}).get(MARK_ENV)
        if found is not None and found.startswith(prefix):
            yield process.pid, found


def descendants(ancestor: int) -> list[int]:
    """Return the pids of all live descendants of process `ancestor`."""
    import psutil

    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(ancestor).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
    return found


def kill_until_gone(find: Callable[[], set[int]], seconds: float = _KILL_SECONDS) -> bool:
    """Send SIGKILL to what `find` returns until it returns nothing; return whether it did.

    One round is not enough, because a process may fork before it is killed.
    """
    deadline = time.monotonic() + seconds
    while pids := find():
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended, or another user owns it
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def kill_run(run: str, except_names: str = "?") -> bool:
    """Kill every process of `run` except this one and those named `except_names`*."""

    def find() -> set[int]:
        own = os.getpid()
        kept = mark(run, except_names)
        return {p for p, m in marked(mark(run, "")) if p != own and not m.startswith(kept)}

    return kill_until_gone(find)


@dataclasses.dataclass(frozen=True)
class Options:
    """What a wrapper needs to know."""

    command: Sequence[str]
    """The trainer's command."""
    lifeline: int
    """File descriptor of the pipe with commands."""
    run: str
    name: str
    """Name of the trainer in its mark."""
    packages: str
    """Folder that has psutil."""
    remove: Sequence[str] = ()
    """Folders to remove if the runner dies."""
    live: bool = False
    """Reset the terminal's scroll region if the runner dies."""


class _Wrapper:
    """The wrapper's state: the trainer's pid and the pipe that signals write to."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.trainer: int | None = None
        self.wakeup, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(self.wakeup, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        for number in _FORWARDED:
            # Signals that nohup ignores stay ignored, here and in the trainer.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _wake)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def loop(self) -> int:
        """Execute the runner's commands until it or the trainer ends; return the wait status."""
        while True:
            readable, _, _ = select.select([self.options.lifeline, self.wakeup], [], [])
            if self.wakeup in readable:
                for number in os.read(self.wakeup, 512):
                    if number != signal.SIGCHLD:
                        self.signal(number)
                status = self.reap()
                if status is not None:
                    self.kill()  # as in a container, all processes end with the trainer
                    return status
            if self.options.lifeline in readable:
                commands = os.read(self.options.lifeline, 512)
                if not commands:
                    self.runner_gone()
                for command in commands:
                    self.execute(command)

    def execute(self, command: int) -> None:
        if command == START and self.trainer is None:
            self.start()
        elif command == QUIT:
            self.kill()
            os._exit(0)
        elif command not in (START, QUIT):
            self.signal(command)

    def start(self) -> None:
        wrapper = os.getpid()
        # Block signals between fork and exec, so that the trainer gets them and not our handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        pid = os.fork()
        if pid == 0:
            _exec(self.options.command, mark(self.options.run, self.options.name), wrapper)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        self.trainer = pid
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # the child does the same, because either may run first
        if not _has_prctl():
            _fork_guard(pid)

    def signal(self, number: int) -> None:
        """Send a signal to the trainer's process group; SIGKILL goes to all its processes."""
        if number == signal.SIGKILL:
            self.kill()
        elif self.trainer is not None:
            _signal_group(self.trainer, number)

    def kill(self) -> None:
        """Kill the trainer and all its processes."""
        if self.trainer is not None:
            _signal_group(self.trainer, signal.SIGKILL)
        kill_until_gone(self.found)

    def reap(self) -> int | None:
        """Reap ended children; return the trainer's wait status if it is among them."""
        found = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self.trainer:
                found = status

    def found(self) -> set[int]:
        name = mark(self.options.run, self.options.name)
        pids = {pid for pid, m in marked(name) if m == name}
        return pids | set(descendants(os.getpid()))

    def runner_gone(self) -> None:
        self.kill()
        kill_run(self.options.run, except_names="wrapper")  # the other wrappers do the same
        for folder in self.options.remove:
            shutil.rmtree(folder, ignore_errors=True)
        if self.options.live and os.isatty(2):
            os.write(2, _RESET_SCROLLING)
        os._exit(128 + signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.killpg(group, number)


def _wake(_number: int, _frame: object) -> None:
    """Do nothing. With a handler, the number arrives in the wakeup pipe."""


def _has_prctl() -> bool:
    return hasattr(ctypes.CDLL(None), "prctl")


def _prctl(option: int, value: int) -> None:
    if _has_prctl():
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _fork_guard(trainer: int) -> None:
    """Start a process that kills the trainer's group if this process is killed.

    It holds one end of a pipe, and only this process holds the other one.
    """
    read_end, write_end = os.pipe()
    if os.fork() != 0:
        os.close(read_end)
        return
    try:
        os.setsid()
        os.close(write_end)
        for number in _FORWARDED:
            signal.signal(number, signal.SIG_IGN)
        for stream in (0, 1, 2):  # readers of the trainer's output wait for its end
            os.close(stream)
        os.read(read_end, 1)
        _signal_group(trainer, signal.SIGKILL)
    finally:
        os._exit(0)


def _exec(command: Sequence[str], own_mark: str, wrapper: int) -> None:
    """Become the trainer, in the forked child. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _FORWARDED:
            if signal.getsignal(number) is _wake:
                signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != wrapper:  # it ended before the line above
            os._exit(128 + signal.SIGKILL)
        for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and children inherit that
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.environ[MARK_ENV] = own_mark
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.execvp(command[0], list(command))
    except FileNotFoundError:
        os.write(2, f"distributed-input: {command[0]}: command not found\n".encode())
        os._exit(EXIT_NOT_FOUND)
    except BaseException as error:  # noqa: BLE001 - must not become a second wrapper
        os.write(2, f"distributed-input: {command[0]}: {error}\n".encode())
        os._exit(EXIT_NOT_EXECUTABLE)


def _end_as(status: int) -> int:
    """Return the exit status in wait status `status`, or end by the same signal."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the trainer has already written a core file
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def command(options: Options) -> list[str]:
    """Return the command that starts a wrapper."""
    return [sys.executable, "-I", "-S", __file__, json.dumps(dataclasses.asdict(options))]


def main(options: Options) -> int:
    """Run one trainer command; return its exit status."""
    sys.path.append(options.packages)
    import psutil  # noqa: F401  now, and not only once the runner has died

    os.set_inheritable(options.lifeline, False)
    return _end_as(_Wrapper(options).loop())


if __name__ == "__main__":
    sys.exit(main(Options(**json.loads(sys.argv[1]))))
