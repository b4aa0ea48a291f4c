"""Measure the CPU time, context switches and memory of processes, and run one to its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from testing.bench.case import REPO
from testing.hosts import THIS_HOST, Host


class BenchError(Exception):
    """A process under test failed. The message ends with the end of its log."""


def with_descendants(pids: Iterable[int]) -> set[psutil.Process]:
    """Return these processes and all their descendants."""
    found: set[psutil.Process] = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found |= {process, *process.children(recursive=True)}
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of these process trees, user and system."""
    total = 0.0
    for process in with_descendants(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


def context_switches(pids: Iterable[int]) -> dict[tuple[int, int], int]:
    """Return the context switches of each thread of these process trees, by process and thread.

    Each is a wake-up of a thread that waited, or the end of its turn.
    """
    found = {}
    for process in with_descendants(pids):
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                with contextlib.suppress(OSError):  # it has ended
                    counts = re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())
                    found[process.pid, int(task.name)] = sum(map(int, counts))
    return found


def switches_since(
    before: Mapping[tuple[int, int], int], after: Mapping[tuple[int, int], int]
) -> int:
    """Return the context switches between two results, without those of threads that ended."""
    return sum(count - before.get(thread, 0) for thread, count in after.items())


def reset_peaks(pids: Iterable[int]) -> None:
    """Reset the peaks that `memory` returns."""
    for process in with_descendants(pids):
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def memory(pids: Iterable[int]) -> dict[str, int]:
    """Return the memory of these process trees in bytes, and their threads.

    Returns:
        peak: maximum resident memory since `reset_peaks`, with pages shared with other processes;
        beyond_slots: current resident memory without the sidecar's shared memory, which several
            processes map.
        threads: current number of threads.
    """
    peak = beyond = threads = 0
    for process in with_descendants(pids):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak += int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) << 10
            maps = process.memory_maps()
            slots = sum(one.rss for one in maps if Path(one.path).name.startswith("slots-"))
            beyond += process.memory_info().rss - slots
            threads += process.num_threads()
    return {"peak": peak, "beyond_slots": beyond, "threads": threads}


def run(
    module: str,
    options: Any,
    env: Mapping[str, str],
    timeout: float,
    host: Host = THIS_HOST,
) -> dict[str, Any]:
    """Run a module to its end, with options as JSON. Return the JSON of its last line of output."""
    # Hide GPUs: the benchmark measures the delivery of rows to the trainer's process.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    try:
        done = subprocess.run(
            host.command([sys.executable, "-m", module, json.dumps(options)]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=REPO,
            env={**os.environ, **quiet, **env},
            timeout=timeout,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        log = (error.stderr or b"").decode(errors="replace")
        raise BenchError(f"{type(error).__name__} of {module}:\n{log[-2000:]}") from error
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_command(folder: Path, entry_point: str, *flags: str, **fields: Any) -> list[str]:
    """Return the beginning of a command that runs a program with an input in local processes.

    Args:
        folder: folder for the input's file.
        entry_point: its dataset function.
        flags: of `distributed-input run`.
        fields: more fields of its spec.
    """
    entry = {"function": entry_point, "source": {"type": "Path", "path": str(REPO)}}
    spec = {"dataset": {"type": "EntryPoint", "entryPoint": entry}, **fields}
    head = {"apiVersion": "distributed-input.dev/v1beta1", "kind": "DistributedInput"}
    resource = {**head, "metadata": {"name": "bench"}}
    file = folder / "input.yaml"
    file.write_text(json.dumps({**resource, "spec": spec}))
    return [sys.executable, "-m", "distributed_input.cli", "run", str(file), *flags, "--"]
