"""A process that reads a dataset on command, and the CPU time of the processes of a run."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import psutil

from distributed_input.api.errors import TerminalError
from distributed_input.runner import plan, process_wrapper
from distributed_input.runner.processes import children
from distributed_input.runner.processes.supervised_process import describe_exit

IN_PROCESS = "distributed_input.worker.datasets.in_process"
TRAINER = "distributed_input.trainer.timed_trainer"
_LAST_LINES = 15
_STOP_SECONDS = 10.0
_PARTS = ("worker", "sidecar", "dispatcher")


class TimedProcess:
    """A process of `graph.timed_reading`. A context manager; the process ends with the block.

    `module` is IN_PROCESS or TRAINER, and `seconds` the time limit for each answer, beyond what it
    was asked to read.
    """

    def __init__(self, module: str, options: Mapping[str, Any], seconds: float) -> None:
        self._seconds = seconds
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(options)],
            # It needs no accelerator: it only reads.
            env=plan.worker_env({"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,  # `answer` waits for the descriptor
        )

    def __enter__(self) -> TimedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        children.end(self._process, _STOP_SECONDS, self._errors)

    def ask(self, **seconds: float) -> None:
        """Request a measurement with these times; its answers are `begun` and `measured`."""
        assert self._process.stdin is not None
        command = json.dumps(seconds)
        try:
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `answer` reports why

    def answer(self, event: str, seconds: float = 0.0) -> dict[str, Any]:
        """Return the next answer, `event`, of a process that was asked to read for some seconds.

        Raises:
            TerminalError: the process failed, ended, or did not answer in time.
        """
        assert self._process.stdout is not None
        limit = self._seconds + seconds
        if not select.select([self._process.stdout], [], [], limit)[0]:
            raise TerminalError(
                f"no rows within {limit:.0f} s. If the dataset only starts slowly, for example "
                "with a large shuffle buffer, set a higher --timeout"
            )
        line = self._process.stdout.readline()
        if not line:
            raise TerminalError(f"the reading process {self._end()}")
        found: dict[str, Any] = json.loads(line)
        if found["event"] != event:
            raise TerminalError(str(found.get("text", line)))
        return found

    def _end(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join([describe_exit(status), *lines])


def cpu_of_parts(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a run's processes by part: worker, sidecar, dispatcher.

    Args:
        pid: of `distributed-input run`.
    """
    found: dict[str, float] = {}
    family = set(process_wrapper.descendants(pid))
    for one, mark in process_wrapper.marked(""):
        part = mark.partition(":")[2].partition("-")[0]
        if one in family and part in _PARTS:
            with contextlib.suppress(psutil.Error):  # it has ended
                spent = psutil.Process(one).cpu_times()
                found[part] = found.get(part, 0.0) + spent.user + spent.system
    return found
