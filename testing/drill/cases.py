"""Causes of a stall, and a function that runs an input with one of them."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed_input
from distributed_input.runner import process_wrapper

_TEMPORARY = tempfile.gettempdir()


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
        {"sidecar": {"buffer": "80Mi", "readAhead": 0}},
        step=0.1,
    ),
)


@contextmanager
def running(case: Case) -> Iterator[Path]:
    """Run an input whose trainer waits for this cause. Yield the folder for temporary files."""
    with tempfile.TemporaryDirectory(dir=_TEMPORARY) as folder:
        # Commands look for runs in these folders: no other run is found.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.environ.pop("XDG_RUNTIME_DIR", None)
        source = {"type": "Path", "path": str(Path(__file__).parent)}
        entry = {"function": "slow_rows:dataset_fn", "args": case.args, "source": source}
        dataset = {"type": "EntryPoint", "entryPoint": entry}
        resource = {
            "apiVersion": "distributed-input.dev/v1beta1",
            "kind": "DistributedInput",
            "metadata": {"name": "drill"},
            "spec": {"dataset": dataset, **case.spec},
        }
        with (
            distributed_input.local(resource, workers=1),
            _training(case),
            _throttled(case, Path(folder)),
        ):
            yield Path(folder)


@contextmanager
def _training(case: Case) -> Iterator[None]:
    """Read in a thread until the end of the block."""
    if case.most == 0:
        yield
        return
    end = threading.Event()

    def train() -> None:
        with distributed_input.connect("drill") as drill:
            numbers = itertools.count(1)  # `enumerate` would keep the last batch
            for batch in drill.numpy():
                number = next(numbers)
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
def _throttled(case: Case, folder: Path) -> Iterator[None]:
    """Stop the sidecar for a share of each 0.5 s."""
    if not case.sidecar_stopped:
        yield
        return
    end = threading.Event()
    (run,) = (one.name.removeprefix("run-") for one in folder.glob("distributed-input-*/run-*"))
    mark = process_wrapper.mark(run, "sidecar-0")
    (pid,) = (pid for pid, found in process_wrapper.marked(mark) if found == mark)

    def throttle() -> None:
        while not end.wait(0.5 * (1 - case.sidecar_stopped)):
            os.kill(pid, signal.SIGSTOP)
            end.wait(0.5 * case.sidecar_stopped)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
