"""Run the drill: `python -m testing.drill [CASE ...]`. The exit status is 0 if all are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed_input
from distributed_input.runner import process_wrapper

_CLI = (sys.executable, "-m", "distributed_input.cli")
_TEMPORARY = tempfile.gettempdir()
_BEFORE_SECONDS = 20.0
"""Time that a cause lasts before the question."""


@dataclass(frozen=True)
class Case:
    """A cause of a stall."""

    what: str
    expected: str
    args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the dataset."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    step: float = 0.0
    """Seconds of a training step."""
    most: int | None = None
    """Batches after which the trainer reads no more; 0: it does not connect."""
    sidecar_stopped: float = 0.0
    """Share of the time that the sidecar is stopped."""


CASES = (
    Case("the program does not call connect()", "trainer", most=0),
    Case("the program does something else after 5 batches", "trainer", most=5),
    Case("rows need much CPU time", "workers", {"compute": 20}),
    Case("one row takes minutes", "dataset", {"stuck": 100}),
    Case(
        "the dataset has one split", "dataset", {"compute": 20}, {"numSplits": 1, "partitions": 1}
    ),
    Case("each row waits 50 ms for storage", "storage", {"wait": 0.05}),
    Case("the sidecar gets 2 % of a CPU", "network", sidecar_stopped=0.98),
    Case("nothing: a step takes 1 s", "none", step=1.0),
    Case(
        "the buffer has room for one batch, which the trainer holds in its step",
        "sidecar",
        {"size": 4 << 20},
        {"sidecar": {"buffer": "80Mi"}},
        step=0.1,
    ),
)


def main() -> int:
    """Print what `explain` names for each case."""
    chosen = [int(one) for one in sys.argv[1:]] or range(len(CASES))
    wrong = 0
    for number in chosen:
        case = CASES[number]
        found, seconds = _explained(case)
        wrong += found["cause"] != case.expected
        mark = "ok" if found["cause"] == case.expected else f"WRONG, expected {case.expected}"
        print(f"{number} {case.what}: {found['cause']} ({mark}) after {seconds:.0f} s", flush=True)
        print(f"    {found['text']}\n    next: {found['next']}", flush=True)
    return int(bool(wrong))


def _explained(case: Case) -> tuple[dict[str, Any], float]:
    """Return the diagnosis of the only trainer, and how long `explain` took."""
    with tempfile.TemporaryDirectory(dir=_TEMPORARY) as folder:
        # `explain` looks for runs in these folders: no other run is found.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.environ.pop("XDG_RUNTIME_DIR", None)
        source = {"path": str(Path(__file__).parent)}
        dataset = {"entryPoint": "slow_rows:dataset_fn", "args": case.args, "source": source}
        resource = {
            "apiVersion": "distributed-input.dev/v1alpha1",
            "kind": "DistributedInput",
            "metadata": {"name": "drill"},
            "spec": {"dataset": dataset, **case.spec},
        }
        with distributed_input.local(resource, workers=1), _training(case), _throttled(case):
            time.sleep(_BEFORE_SECONDS)
            began = time.monotonic()
            done = subprocess.run((*_CLI, "explain", "-o", "json"), capture_output=True, text=True)
            seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["trainers"]
    return found, seconds


@contextmanager
def _training(case: Case) -> Iterator[None]:
    """Read in a thread until the end of the block."""
    if case.most == 0:
        yield
        return
    end = threading.Event()

    def train() -> None:
        with distributed_input.connect("drill") as drill:
            number = 0
            for batch in drill.numpy():
                number += 1
                if end.wait(case.step):
                    return
                if number == case.most:
                    end.wait()
                del batch  # the next one may need its place in the buffer

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()


@contextmanager
def _throttled(case: Case) -> Iterator[None]:
    """Stop the sidecar for a share of each 0.5 s."""
    end = threading.Event()
    (pid,) = (one for one, mark in process_wrapper.marked("") if mark.endswith(":sidecar-0"))

    def throttle() -> None:
        while not end.wait(0.5 * (1 - case.sidecar_stopped)):
            os.kill(pid, signal.SIGSTOP)
            end.wait(0.5 * case.sidecar_stopped)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    if case.sidecar_stopped:
        thread.start()
    try:
        yield
    finally:
        end.set()
        if case.sidecar_stopped:
            thread.join()


if __name__ == "__main__":
    sys.exit(main())
