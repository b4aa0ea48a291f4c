"""Starts `distributed-input run` with stand-ins, and watches it and its processes."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from distributed_input.runner.processes import guard

STANDINS = (str(Path(__file__).with_name("run_with_fakes.py")),)
REAL = ("-m", "distributed_input.cli", "run")
SECONDS = 60.0
"""For what should take one, or ten where TensorFlow starts: the machine may be busy."""

INPUT = """\
apiVersion: distributed-input.dev/v1alpha1
kind: DistributedInput
metadata: {name: train}
spec:
  workers: {replicas: 2}
"""


class Lines:
    """The lines of a pipe, as they come."""

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
        """The first line from here on in which `pattern` is found."""
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
        """Everything, once the pipe has ended."""
        while (line := self._queue.get(timeout=SECONDS)) is not None:
            self.seen.append(line)
        return "\n".join(self.seen)


class Run:
    """One runner as a process, its folders below `home`. `terminal`: for stdout and stderr."""

    def __init__(
        self,
        home: Path,
        command: Sequence[str],
        *flags: str,
        file: str = INPUT,
        program: Sequence[str] = STANDINS,
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
        """The run's name, the mark of its processes."""
        return self.folder.name.removeprefix("run-")

    def pid(self, part: str) -> int:
        """The pid of the live process of `part`."""
        wanted = guard.mark(self.name, part)
        (found,) = (pid for pid, mark in guard.marked(wanted) if mark == wanted)
        return found

    def ready(self, part: str) -> dict[str, Any]:
        """What `part` wrote when it last became ready."""
        found: dict[str, Any] = json.loads((self.folder / f"{part}.ready").read_text())
        return found

    def report(self) -> dict[str, Any]:
        """The run's numbers."""
        found: dict[str, Any] = json.loads(self.report_file.read_text())
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the runner."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """Kill it, if the test has not ended it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


@contextlib.contextmanager
def watched(run: Run) -> Iterator[list[str]]:
    """The marks of the processes of `run` at the start; at the end all of them must have ended.

    Within 5 seconds, by the kernel's word (pidfd), with nothing new in their place.
    """
    name = run.name
    marks = dict(guard.marked(guard.mark(name, "")))
    descriptors = []
    for pid in marks:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    yield sorted(mark.partition(":")[2] for mark in marks.values())
    deadline = time.monotonic() + 5
    for descriptor in descriptors:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        ended = poller.poll(max(0, int((deadline - time.monotonic()) * 1000)))
        os.close(descriptor)
        if not ended:
            left = list(guard.marked(guard.mark(name, "")))
            guard.kill_run(name)
            raise AssertionError(f"still alive: {left}")
    assert list(guard.marked(guard.mark(name, ""))) == []


def with_default_signals() -> None:
    """Let children get SIGINT even where whoever started the tests ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Says "ready", and ends with what it reads; or with status 50 + n at signal n.
LISTENING = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda n, _: os._exit(50 + n))
print("ready", flush=True)
sys.exit(int(sys.stdin.readline()))
"""
# Says "ready PID", and ends at SIGKILL only.
DEAF = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""


def python(code: str) -> list[str]:
    """A trainer command that runs `code`."""
    return [sys.executable, "-S", "-c", code]


def starting(home: Path) -> Iterator[Callable[..., Run]]:
    """For a fixture: starts runs as `Run` does, and ends what a test leaves."""
    with_default_signals()
    runs: list[Run] = []

    def start(command: list[str], *flags: str, **more: Any) -> Run:
        runs.append(Run(home, command, *flags, **more))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def tell(run: Run, line: str) -> None:
    """Write a line to the runner's stdin, which is the trainer's."""
    assert run.process.stdin
    run.process.stdin.write(f"{line}\n")
    run.process.stdin.flush()


def pidfd_of_ready(run: Run) -> int:
    """A descriptor that becomes readable when the process that says "ready PID" ends."""
    return os.pidfd_open(int(run.out.wait_for(r"ready (\d+)")[1]))


def wait_readable(descriptor: int, seconds: float = SECONDS) -> bool:
    """Wait until a descriptor is readable, and close it; whether it was in time."""
    readable, _, _ = select.select([descriptor], [], [], seconds)
    os.close(descriptor)
    return bool(readable)


def wait_until(condition: Callable[[], bool], seen: object = "") -> None:
    """For what has no event."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {seen}"
        time.sleep(0.02)


def wait_for_state(pid: int, state: str) -> None:
    """Until the process is in `state`, as ps tells it."""
    stat = Path(f"/proc/{pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == state)


def wait_until_started(run: Run, part: str, other_than: object = None) -> dict[str, object]:
    """Wait for a process of `part`; with `other_than`, until one with another pid is ready."""

    def started() -> bool:
        try:
            if other_than is not None:
                return run.ready(part)["pid"] != other_than
            return any(True for _ in guard.marked(guard.mark(run.name, part)))
        except (OSError, ValueError):
            return False

    wait_until(started)
    return run.ready(part) if other_than is not None else {}
