"""Processes: starting and stopping them, and what Linux says of their CPU time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.bench.case import REPO

_TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 300.0  # sixteen workers that import TensorFlow at once on two cores
STOP_SECONDS = 10.0


class BenchError(Exception):
    """A process under test did not do what it should; the message ends with its log's end."""


def with_descendants(pids: Iterable[int]) -> set[int]:
    """These processes and all that they have started."""
    found: set[int] = set()
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    todo += map(int, children.read_text().split())
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time that these process trees have taken, user and system."""
    total = 0
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def reset_peaks(pids: Iterable[int]) -> None:
    """Let `memory`'s peaks count from now."""
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory(pids: Iterable[int]) -> dict[str, int]:
    """Memory of these process trees in bytes.

    Returns:
        peak: resident at most since `reset_peaks`, pages shared with others included;
        beyond_ring: resident now, without the sidecar's ring, which several processes map.
    """
    peak = beyond = 0
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            peak += _kib(status["VmHWM"])
            beyond += _kib(status["VmRSS"]) - _ring_bytes(pid)
    return {"peak": peak, "beyond_ring": beyond}


def _ring_bytes(pid: int) -> int:
    total, in_ring = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split(None, 5)
        if "-" in head[0]:  # "7f00-7f10 rw-s 00000000 00:19 123   /dev/shm/x/ring-1"
            in_ring = len(head) == 6 and os.path.basename(head[5]).startswith("ring-")
        elif in_ring and head[0] == "Rss:":
            total += _kib(head[1])
    return total


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024


@dataclass(frozen=True)
class Server:
    """A process that serves once it has written its ready file."""

    process: subprocess.Popen[bytes]
    ready: Path
    log: Path

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def said(self) -> dict[str, Any]:
        """What it wrote to its ready file; waits for that."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ready.exists():
            if self.process.poll() is not None:
                raise BenchError(f"a server ended at its start:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise BenchError(f"a server was not ready in time:\n{tail(self.log)}")
            time.sleep(0.05)
        found: dict[str, Any] = json.loads(self.ready.read_text())
        return found


@contextlib.contextmanager
def server(argv: Sequence[str], ready: Path, log: Path) -> Iterator[Server]:
    """Start a server, and stop it at the end.

    Args:
        argv: its command line.
        ready: a file that it writes JSON to once it serves.
        log: gets its output.
    """
    ready.unlink(missing_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=REPO, env=_env({})
        )
    try:
        yield Server(process, ready, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin:
            process.stdin.close()


def run(argv: Sequence[str], log: Path, env: Mapping[str, str], timeout: float) -> dict[str, Any]:
    """Run a command to its end; returns the JSON of its last line of output."""
    with log.open("ab") as errors:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPO,
                env=_env(env),
                timeout=timeout,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise BenchError(f"{type(error).__name__} of {argv[2]}:\n{tail(log)}") from error
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _env(extra: Mapping[str, str]) -> dict[str, str]:
    # No system gets a GPU: this is about getting rows to the trainer's process.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **quiet, **extra}
