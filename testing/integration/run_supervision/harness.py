"""Starts `distributed-input run` with fake parts, and observes it and its processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from distributed_input.runner import process_wrapper
from testing.portability.shim import pidfd_open

WITH_FAKES = (str(Path(__file__).with_name("run_with_fakes.py")),)
WITH_REAL_PARTS = ("-m", "distributed_input.cli", "run")
SECONDS = 60.0
"""Timeout of all waits. An idle machine needs 1 s, or 10 s to start TensorFlow."""

HAS_GUARDS = not os.path.exists("/proc/self")
"""Whether each wrapper has a guard process, as on systems without /proc."""

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  workers: {replicas: 2}
"""


class Lines:
    """The lines of a pipe, as they arrive."""

    def __init__(self, pipe: IO[str] | None) -> None:
        self.seen: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        if pipe is not None:
            threading.Thread(target=self._read, args=(pipe,), daemon=True).start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first following line that contains `pattern`."""
        deadline = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(queue.Empty):
                line = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
                if line is None:
                    raise AssertionError(f"ended without {pattern!r}:\n" + "\n".join(self.seen))
                self.seen.append(line)
                if found := re.search(pattern, line):
                    return found
            if time.monotonic() > deadline:
                raise AssertionError(f"no {pattern!r} in time:\n" + "\n".join(self.seen))

    def rest(self) -> str:
        """Wait for the end of the pipe and return everything."""
        while (line := self._queue.get(timeout=SECONDS)) is not None:
            self.seen.append(line)
        return "\n".join(self.seen)


class Run:
    """One process of the runner, with its folders below `home`.

    Args:
        home: working folder and TMPDIR.
        command: the trainer's command.
        flags: the runner's flags.
        file: content of the input file.
        program: the runner's program.
        terminal: descriptor for stdout and stderr, in place of pipes.
        env: additional variables.
    """

    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *flags: str,
        file: str = INPUT,
        program: Sequence[str] = WITH_FAKES,
        terminal: int | None = None,
        **env: str,
    ) -> None:
        self.home = home
        self.file = home / "input.yaml"
        self.file.write_text(file)
        self.report_file = home / "report.json"
        outer = {k: v for k, v in os.environ.items() if k not in ("XDG_RUNTIME_DIR", "TF_CONFIG")}
        arguments = [str(self.file), "--report", str(self.report_file), *flags]
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments, "--", *command],
            env={**outer, "TMPDIR": str(home), **env},
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=terminal or subprocess.PIPE,
            stderr=terminal or subprocess.PIPE,
            text=True,
        )
        self.out = Lines(self.process.stdout)
        self.err = Lines(self.process.stderr)

    @property
    def folder(self) -> Path:
        """The run's private folder."""
        (found,) = self.home.glob("distributed-input-*/run-*")
        return found

    @property
    def name(self) -> str:
        """The run's name, which marks its processes."""
        return self.folder.name.removeprefix("run-")

    def pid(self, part: str) -> int:
        """Return the process id of the live process of `part`."""
        expected = process_wrapper.mark(self.name, part)
        found = [pid for pid, mark in process_wrapper.marked(expected) if mark == expected]
        if HAS_GUARDS:  # the guard of a wrapper has the same mark
            return min(found)
        (pid,) = found
        return pid

    def ready(self, part: str) -> dict[str, Any]:
        """Return the ready file that `part` wrote last."""
        found: dict[str, Any] = json.loads((self.folder / f"{part}.ready").read_text())
        return found

    def report(self) -> dict[str, Any]:
        """Return the run's report."""
        found: dict[str, Any] = json.loads(self.report_file.read_text())
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the runner."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Return the exit status."""
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """Kill the runner if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def names_of(marks: Iterable[str]) -> list[str]:
    """Return the names of a run's processes, sorted. A guard has the name of its wrapper."""
    names = [mark.partition(":")[2] for mark in marks]
    return sorted(set(names) if HAS_GUARDS else names)


@contextlib.contextmanager
def processes_end_with(run: Run) -> Iterator[list[str]]:
    """Yield the marks of the processes of `run`. Require that they end within 5 s after the block.

    The ends are detected with pidfds. Raises AssertionError if a process lives, or if a new one
    exists.
    """
    name = run.name
    marks = dict(process_wrapper.marked(process_wrapper.mark(name, "")))
    descriptors = []
    for pid in marks:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(pidfd_open(pid))
    yield names_of(marks.values())
    deadline = time.monotonic() + 5
    for descriptor in descriptors:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        ended = poller.poll(max(0, int((deadline - time.monotonic()) * 1000)))
        os.close(descriptor)
        if not ended:
            left = list(process_wrapper.marked(process_wrapper.mark(name, "")))
            process_wrapper.kill_run(name)
            raise AssertionError(f"still alive: {left}")
    assert list(process_wrapper.marked(process_wrapper.mark(name, ""))) == []


def with_default_signals() -> None:
    """Restore the default action of SIGINT, if the tests were started with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Prints "ready". Exits with the status that it reads, or with 50 + n after signal n.
LISTENING = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda n, _: os._exit(50 + n))
print("ready", flush=True)
sys.exit(int(sys.stdin.readline()))
"""
# Prints "ready PID" and ends only after SIGKILL.
IGNORES_SIGNALS = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""


def python(code: str) -> list[str]:
    """Return a trainer command that runs `code`."""
    return [sys.executable, "-S", "-c", code]


def run_starter(home: Path) -> Iterator[Callable[..., Run]]:
    """Yield a function that starts runs as `Run` does. End all remaining runs. For a fixture."""
    with_default_signals()
    runs: list[Run] = []

    def start(command: list[str], *flags: str, **more: Any) -> Run:
        runs.append(Run(home, command, *flags, **more))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def write_line(run: Run, line: str) -> None:
    """Write a line to the runner's stdin, which is the trainer's."""
    assert run.process.stdin
    run.process.stdin.write(f"{line}\n")
    run.process.stdin.flush()


def pidfd_of_ready(run: Run) -> int:
    """Return a descriptor that becomes readable when the process that prints "ready PID" ends."""
    return pidfd_open(int(run.out.wait_for(r"ready (\d+)")[1]))


def wait_readable(descriptor: int, seconds: float = SECONDS) -> bool:
    """Wait until a descriptor is readable, and close it. Return whether it was in time."""
    readable, _, _ = select.select([descriptor], [], [], seconds)
    os.close(descriptor)
    return bool(readable)


def wait_until(condition: Callable[[], bool], details: object = "") -> None:
    """Poll a condition that has no event."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {details}"
        time.sleep(0.02)


def wait_for_state(pid: int, state: str) -> None:
    """Wait until the process is in `state`, with the letters of ps."""
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    wait_until(lambda: subprocess.check_output(command, text=True).startswith(state))


def wait_until_started(run: Run, part: str, other_than: object = None) -> dict[str, object]:
    """Wait for a process of `part`; with `other_than`, until one with another pid is ready."""

    def started() -> bool:
        try:
            if other_than is not None:
                return run.ready(part)["pid"] != other_than
            return any(True for _ in process_wrapper.marked(process_wrapper.mark(run.name, part)))
        except (OSError, ValueError):
            return False

    wait_until(started)
    return run.ready(part) if other_than is not None else {}
