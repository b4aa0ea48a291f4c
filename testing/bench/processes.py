"""Start and stop processes, and measure their CPU time and memory with Linux's /proc."""

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
START_SECONDS = 300.0  # 16 workers import TensorFlow at once on two cores
STOP_SECONDS = 10.0


class BenchError(Exception):
    """A process under test failed. The message ends with the end of its log."""


def with_descendants(pids: Iterable[int]) -> set[int]:
    """Return these processes and all their descendants."""
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
    """Return the CPU time of these process trees, user and system."""
    total = 0
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):
            # The name in parentheses may contain spaces; utime and stime are fields 14 and 15.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def reset_peaks(pids: Iterable[int]) -> None:
    """Reset the peaks that `memory` returns."""
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory(pids: Iterable[int]) -> dict[str, int]:
    """Return the memory of these process trees in bytes, and their threads.

    Returns:
        peak: maximum resident memory since `reset_peaks`, with pages shared with other processes;
        beyond_ring: current resident memory without the sidecar's shared memory, which several
            processes map.
        threads: current number of threads.
    """
    peak = beyond = threads = 0
    for pid in with_descendants(pids):
        with contextlib.suppress(OSError):
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            peak += _kib(status["VmHWM"])
            beyond += _kib(status["VmRSS"]) - _ring_bytes(pid)
            threads += int(status["Threads"])
    return {"peak": peak, "beyond_ring": beyond, "threads": threads}


def _ring_bytes(pid: int) -> int:
    total, in_ring = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = line.split(None, 5)
        if "-" in head[0]:  # "7f00-7f10 rw-s 00000000 00:19 123   /dev/shm/x/slots-1"
            in_ring = len(head) == 6 and os.path.basename(head[5]).startswith("slots-")
        elif in_ring and head[0] == "Rss:":
            total += _kib(head[1])
    return total


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024


@dataclass(frozen=True)
class Server:
    """A process that serves after it has written its ready file."""

    process: subprocess.Popen[bytes]
    ready: Path
    log: Path

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def wait_ready(self) -> dict[str, Any]:
        """Wait for the ready file and return its content. Raises BenchError."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ready.exists():
            if self.process.poll() is not None:
                raise BenchError(f"a server ended before it was ready:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise BenchError(f"a server was not ready in time:\n{tail(self.log)}")
            time.sleep(0.05)
        found: dict[str, Any] = json.loads(self.ready.read_text())
        return found


@contextlib.contextmanager
def server(argv: Sequence[str], ready: Path, log: Path) -> Iterator[Server]:
    """Start a server, and stop it at the end of the block.

    Args:
        argv: command line.
        ready: file to which the server writes JSON when it serves.
        log: file that gets its output.
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
    """Run a command to its end. Return the JSON of its last line of output."""
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
    """Return the end of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _env(extra: Mapping[str, str]) -> dict[str, str]:
    # Hide GPUs: the benchmark measures the delivery of rows to the trainer's process.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**os.environ, **quiet, **extra}
