"""The process between the runner and one trainer command, so that nothing outlives the runner.

The guard reads commands from a pipe whose other end only the runner holds: START starts the
trainer, QUIT ends guard and trainer, any other byte is the number of a signal for the
trainer's process group. End of file
means that the runner is gone, however it went: the guard then kills every process of the run,
found by the mark in its environment (it survives a change of group or session) or as a
descendant (survives a cleared environment: the guard is a subreaper), and removes the run's
folders. It ends as the trainer ended: same status, or same signal.

The file is run by its path with `python -I -S`, so that neither the user's folder nor
PYTHONPATH can change what it imports, and it imports nothing outside the standard library.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence

MARK_ENV = "DISTRIBUTED_INPUT_RUN"
"""In the environment of every process of a run: `<run>:<name of the process>`."""
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
    """The value of MARK_ENV for process `name` of run `run`."""
    return f"{run}:{name}"


def marked(prefix: str) -> Iterator[tuple[int, str]]:
    """(pid, mark) of every live process whose mark starts with `prefix`; needs /proc."""
    wanted = f"{MARK_ENV}={prefix}".encode()
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        for variable in variables:
            if variable.startswith(wanted):
                yield pid, variable.partition(b"=")[2].decode(errors="replace")
                break


def descendants(ancestor: int) -> list[int]:
    """The pids of all live children, grandchildren and so on of process `ancestor`."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name, in parentheses, may hold anything: fields count from behind it.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(pid)
    found: list[int] = []
    todo = [ancestor]
    while todo:
        born = children.pop(todo.pop(), [])
        found += born
        todo += born
    return found


def kill_until_gone(find: Callable[[], set[int]], seconds: float = _KILL_SECONDS) -> bool:
    """SIGKILL what `find` returns, again until it returns nothing; whether it came to that.

    Again, because a process may fork between being found and being killed.
    """
    deadline = time.monotonic() + seconds
    while pids := find():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # gone already, or not ours to kill
                pass
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def kill_run(run: str, but: str = "?") -> bool:
    """SIGKILL every process of `run` except this one and those whose names start with `but`."""

    def find() -> set[int]:
        own = os.getpid()
        spared = mark(run, but)
        return {p for p, m in marked(mark(run, "")) if p != own and not m.startswith(spared)}

    return kill_until_gone(find)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:  # no /proc: not Linux
        return []


class _Guard:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.trainer: int | None = None
        self.wakeup, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(self.wakeup, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        for number in _FORWARDED:
            # What nohup and the like have set to be ignored stays so, here and in the trainer.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _wake)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def loop(self) -> int:
        """Obey the runner until it or the trainer ends; the trainer's wait status."""
        while True:
            readable, _, _ = select.select([self.options.lifeline, self.wakeup], [], [])
            if self.wakeup in readable:
                for number in os.read(self.wakeup, 512):
                    if number != signal.SIGCHLD:
                        self.signal(number)
                status = self.reap()
                if status is not None:
                    self.kill()  # what the trainer leaves behind ends with it, as in a container
                    return status
            if self.options.lifeline in readable:
                commands = os.read(self.options.lifeline, 512)
                if not commands:
                    self.runner_gone()
                for command in commands:
                    self.obey(command)

    def obey(self, command: int) -> None:
        if command == START and self.trainer is None:
            self.start()
        elif command == QUIT:
            self.kill()
            os._exit(0)
        elif command not in (START, QUIT):
            self.signal(command)

    def start(self) -> None:
        guard = os.getpid()
        # A signal between fork and exec must wait for the trainer, not end in our handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        pid = os.fork()
        if pid == 0:
            _exec(self.options.command, mark(self.options.run, self.options.name), guard)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        self.trainer = pid
        try:
            os.setpgid(pid, pid)  # here and in the child: whoever is first, it is done
        except OSError:
            pass
        if self.options.pid_file:
            part = f"{self.options.pid_file}.part"
            with open(part, "w", encoding="utf-8") as file:
                json.dump({"pid": pid}, file)
            os.replace(part, self.options.pid_file)

    def signal(self, number: int) -> None:
        """Pass signal `number` on to the trainer's group; SIGKILL goes to all that came of it."""
        if number == signal.SIGKILL:
            self.kill()
        elif self.trainer is not None:
            _signal_group(self.trainer, number)

    def kill(self) -> None:
        """SIGKILL all that came of the trainer."""
        if self.trainer is not None:
            _signal_group(self.trainer, signal.SIGKILL)  # all there is without /proc
        kill_until_gone(self.found)

    def reap(self) -> int | None:
        """Take the statuses of ended children; the trainer's, if it is among them."""
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
        kill_run(self.options.run, but="guard")  # the other guards have their own to do
        for folder in self.options.remove:
            shutil.rmtree(folder, ignore_errors=True)
        if self.options.live and os.isatty(2):
            os.write(2, _RESET_SCROLLING)
        os._exit(128 + signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except OSError:  # it has ended
        pass


def _wake(_number: int, _frame: object) -> None:
    """Only so that the number arrives in the wakeup pipe."""


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _exec(command: Sequence[str], own_mark: str, guard: int) -> None:
    """In the forked child: become the trainer. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _FORWARDED:
            if signal.getsignal(number) is _wake:
                signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before the line above
            os._exit(128 + signal.SIGKILL)
        for name in ("SIGPIPE", "SIGXFSZ"):  # ignored by Python, and that would be inherited
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.environ[MARK_ENV] = own_mark
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.execvp(command[0], list(command))
    except FileNotFoundError:
        os.write(2, f"distributed-input: {command[0]}: command not found\n".encode())
        os._exit(EXIT_NOT_FOUND)
    except BaseException as error:  # noqa: BLE001 - the child must never go on as a second guard
        os.write(2, f"distributed-input: {command[0]}: {error}\n".encode())
        os._exit(EXIT_NOT_EXECUTABLE)


def _end_as(status: int) -> int:
    """The exit status that `status` means; where it was a signal, die of the same one."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def main(argv: Sequence[str] | None = None) -> int:
    """Guard one trainer command; the trainer's exit status."""
    parser = argparse.ArgumentParser(prog="python -m distributed_input.runner.processes.guard")
    parser.add_argument("--lifeline", type=int, required=True, help="descriptor to read from")
    parser.add_argument("--run", required=True, help="mark of the run's processes")
    parser.add_argument("--name", required=True, help="mark of the trainer's processes")
    parser.add_argument("--pid-file", help="gets the trainer's pid, as JSON")
    parser.add_argument("--remove", action="append", default=[], help="folder to remove at the end")
    parser.add_argument("--live", action="store_true", help="reset the terminal's scroll region")
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Split by hand: argparse would take a "--" of the trainer's own away.
    border = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:border])
    options.command = arguments[border + 1 :]
    if not options.command:
        parser.error("no command after --")
    os.set_inheritable(options.lifeline, False)
    return _end_as(_Guard(options).loop())


if __name__ == "__main__":
    sys.exit(main())
