"""The execution of one schedule, from the first process to the verdict."""

from __future__ import annotations

import faulthandler
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from testing.chaos.consumers import Consumers, Rows
from testing.chaos.faults import Applied, Injector
from testing.chaos.fleet import Fleet
from testing.chaos.ledger import Verdict
from testing.chaos.loop import TrainingLoop
from testing.chaos.schedule import Fault, Schedule
from testing.processes.forks import Forks, ProcessError

_NEVER = ("replay differs", "facts contradict")  # the datasets are deterministic
_MAX_LINES = 5
_RING_SECONDS = 6.0
_STEPS_KEPT = 2000
_SILENT_SECONDS = 4.0  # a sidecar without a reader sends no status


@dataclass(frozen=True)
class Replay:
    """A reopened stream: the time (Unix seconds) and the number of rows to compute again."""

    at: float
    split: int
    rows: int


@dataclass
class Outcome:
    """The result of a schedule.

    Attributes:
        problems: descriptions of everything that went wrong; empty if the schedule passed.
        steps: (time.monotonic() at the end, duration in seconds) of the last steps. The number is
            limited, because a soak run must not grow by its own measurements.
        folder: folder with the logs; kept if the schedule failed.
    """

    schedule: Schedule
    verdict: Verdict
    problems: list[str] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    steps: Sequence[tuple[float, float]] = ()
    replays: list[Replay] = field(default_factory=list)
    seconds: float = 0.0
    folder: str = ""

    @property
    def passed(self) -> bool:
        """Whether the ledger is correct and there are no other problems."""
        return self.verdict.passed and not self.problems


class Loop(TrainingLoop):
    """The training loop of one job, with real processes."""

    consumers: Consumers

    def __init__(
        self, schedule: Schedule, fleet: Fleet, outcome: Outcome, end: float, job: int
    ) -> None:
        super().__init__(schedule, Injector(fleet), job)
        self.steps: deque[tuple[float, float]] = deque(maxlen=_STEPS_KEPT)
        self._fleet, self._outcome, self._end = fleet, outcome, end
        self._last_begins = time.monotonic() + schedule.duration
        self.consumers = self._new_consumers()

    def run(self) -> None:
        """Read all epochs; return when the last one has ended."""
        self.consumers.connect(None)
        self._save(ended=False)
        while self._has_next_epoch():
            self._begin()
            ended = False
            while not ended:
                fault = self._due()
                if fault is not None:
                    if fault.kind == "crash_trainer":
                        self._crash(fault)
                    else:
                        saved = self._rewind()
                        self._note(fault, f"to epoch {saved.epoch} step {saved.steps}")
                    self._begin()
                else:
                    ended = self._step()
            self._save(ended=True)

    def _has_next_epoch(self) -> bool:
        if not self._topology.epochs:
            return time.monotonic() < self._last_begins
        return super()._has_next_epoch()

    def _take(self) -> list[list[Rows] | None]:
        began = time.monotonic()
        units = super()._take()
        now = time.monotonic()
        self.steps.append((now, now - began))
        return units

    def _crash(self, fault: Fault) -> None:
        before = len(self.consumers)
        self.consumers.crash()
        after = fault.consumers or before
        self._note(fault, f"{before} -> {after} consumers, sidecars {fault.sidecars}")
        if after != before or fault.sidecars != "stay":
            with self._fleet.lock:
                if fault.sidecars != "linger":
                    for process in self._fleet.sidecars:
                        self._fleet.kill(process)
                self._fleet.start_sidecars(after)
        self.consumers = self._new_consumers()
        self.consumers.connect(self._positions(after))
        self._restore_ledger()

    def _note(self, fault: Fault, text: str) -> None:
        self.injector.applied.append(Applied(fault.kind, time.monotonic(), text))

    def _new_consumers(self) -> Consumers:
        folders = [self._fleet.folder_of(c) for c in range(len(self._fleet.sidecars))]
        return Consumers(folders, self._schedule, self._end, self.job)

    def check_rings(self) -> None:
        """Report a problem unless all slots become free after the last batch is released.

        A sidecar that started after the trainer had all its batches has no reader and sends no
        status.
        """
        began = time.monotonic()
        fills: list[float] = []
        while (since := time.monotonic() - began) < _RING_SECONDS:
            reported = self._fleet.status().consumers
            fills = [c.last.buffer_fill for c in reported]
            expected = len(self._fleet.sidecars) * self._topology.jobs
            complete = len(reported) == expected or since > _SILENT_SECONDS
            current = complete and all(c.age_seconds < since for c in reported)
            if current and not any(fills):
                return
            self._sleep(0.1)
        self._outcome.problems.append(f"slots are still in use after the end: {fills}")


def run(
    schedule: Schedule,
    forks: Forks,
    mutants: Mapping[str, str] | None = None,
    watch: Callable[[Fleet], None] | None = None,
    sections: Mapping[str, Any] | None = None,
    loop: type[Loop] = Loop,
) -> Outcome:
    """Run a schedule. Errors of the product go into the outcome and are not raised.

    Args:
        schedule: topology, dataset and faults.
        forks: what starts the processes.
        mutants: see `Fleet`.
        watch: called with the processes before the first step.
        sections: see `Fleet`.
        loop: the training loop of a job.
    """
    began = time.monotonic()
    outcome = Outcome(schedule, Verdict())
    fleet: Fleet | None = None
    try:
        fleet = Fleet(forks, schedule, mutants, sections)
        outcome.folder = str(fleet.folder)
        if watch is not None:
            watch(fleet)
        with _stacks_on_hang(schedule.deadline, outcome):
            loops = [
                loop(schedule, fleet, outcome, began + schedule.deadline, job)
                for job in range(schedule.topology.jobs)
            ]
            _run(loops, outcome)
    except ProcessError as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    if fleet is not None:
        outcome.problems += fleet.close()
        logs = fleet.logs()
        outcome.problems += suspicious(logs)
        outcome.replays = replays(logs)
        if outcome.passed:
            fleet.remove()
    outcome.seconds = time.monotonic() - began
    return outcome


def _run(loops: Sequence[Loop], outcome: Outcome) -> None:
    first = loops[0]
    try:
        with ThreadPoolExecutor(len(loops)) as pool:
            runs = [pool.submit(loop.run) for loop in loops]
        for each in runs:
            each.result()
        first.injector.finish()
        for loop in loops:
            loop.consumers.close()
        first.check_rings()
    except Exception as error:  # noqa: BLE001 - every error of the product is a result
        outcome.problems.append(f"{type(error).__name__}: {error}")
    finally:
        first.injector.finish()
        outcome.applied, outcome.steps = first.injector.applied, list(first.steps)
        outcome.problems += [f"fault: {type(e).__name__}: {e}" for e in first.injector.errors]
        for loop in loops:
            loop.consumers.end()
            outcome.problems += [f"thread {name} is stuck" for name in loop.consumers.stuck()]
            outcome.verdict.add(loop.ledger.close())
        outcome.problems += outcome.verdict.violations


@contextmanager
def _stacks_on_hang(seconds: float, outcome: Outcome) -> Iterator[None]:
    """Record the stacks of all threads if the block takes longer than `seconds`."""
    with tempfile.TemporaryFile("w+") as file:

        def dump() -> None:
            faulthandler.dump_traceback(file, all_threads=True)

        timer = threading.Timer(seconds, dump)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            stacks = file.read()
            if stacks:
                outcome.problems.append(f"hung; stacks:\n{stacks}")


def suspicious(logs: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return errors, tracebacks, and warnings that a deterministic dataset cannot cause."""
    found = [
        f"{name}: {entry.get('message')}: {_rest(entry)}"
        for name, entry in logs
        if entry.get("level") in {"error", "raw"} or entry.get("message") in _NEVER
    ]
    return found[:_MAX_LINES]


def replays(logs: Sequence[tuple[str, dict[str, Any]]]) -> list[Replay]:
    """Return the streams that sidecars reopened."""
    return [
        Replay(datetime.fromisoformat(entry["time"]).timestamp(), entry["split"], entry["row"])
        for _, entry in logs
        if entry.get("message") == "stream broke; opening it again"
    ]


def _rest(entry: dict[str, Any]) -> str:
    fields = {k: v for k, v in entry.items() if k not in {"time", "level", "message", "logger"}}
    return str(fields)[:1500]
