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

from testing.chaos.consumers import Checkpoint, Consumers, ConsumerTimeout, Rows
from testing.chaos.faults import Applied, Injector
from testing.chaos.fleet import Fleet
from testing.chaos.ledger import Ledger, Verdict
from testing.chaos.logcheck import Replay, replays, suspicious
from testing.chaos.schedule import Fault, Schedule
from testing.processes.forks import Forks, ProcessError

_RING_SECONDS = 6.0
_STEPS_KEPT = 2000
_SILENT_SECONDS = 4.0  # a sidecar without a reader sends no status


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


class _Loop:
    """The training loop of one job over all restarts. The first job's loop injects the faults."""

    def __init__(
        self, schedule: Schedule, fleet: Fleet, outcome: Outcome, end: float, job: int
    ) -> None:
        self.ledger = Ledger(schedule)
        self.injector = Injector(fleet)
        self.job = f"job-{job}" if job else ""
        self.steps: deque[tuple[float, float]] = deque(maxlen=_STEPS_KEPT)
        self._schedule, self._topology, self._fleet = schedule, schedule.topology, fleet
        self._outcome, self._end = outcome, end
        self._pending = [] if job else sorted(schedule.faults, key=lambda f: f.step)
        self._taken = 0  # over all restarts
        self._checkpoint: Checkpoint | None = None
        self._pause = threading.Event()
        self._last_begins = time.monotonic() + schedule.duration
        self.consumers = self._new_consumers()

    def run(self) -> None:
        """Read all epochs; return when the last one has ended."""
        self.consumers.connect(None)
        self._save(ended=False)
        while self._has_next_epoch():
            self.consumers.begin()
            self.ledger.begin_epoch()
            ended = False
            while not ended:
                crash = self._due()
                if crash is not None:
                    (self._crash if crash.kind == "crash_trainer" else self._rewind)(crash)
                    self.consumers.begin()
                    self.ledger.begin_epoch()
                else:
                    ended = self._step()
            self._save(ended=True)

    def _has_next_epoch(self) -> bool:
        """Return whether another epoch remains, counted from the last checkpoint."""
        if not self._topology.epochs:
            return time.monotonic() < self._last_begins
        saved = self._checkpoint
        ended = 0 if saved is None or not saved.ended else saved.epoch + 1
        return ended < self._topology.epochs

    def _step(self) -> bool:
        """Take one step on all consumers; return whether the epoch has ended."""
        began = time.monotonic()
        units = self.consumers.step()
        now = time.monotonic()
        self.steps.append((now, now - began))
        ends = [each is None for each in units]
        if all(ends):
            self.ledger.end_epoch(len(units))
            return True
        if any(ends) and not self._topology.whole:
            at = f"epoch {self.ledger.epoch} step {self.ledger.steps}"
            raise UnevenSteps(
                f"{at}: consumers {_indices_of(ends)} saw the end, the others got a batch"
            )
        self.ledger.commit(units)
        self._taken += 1
        # Whole elements can end for one consumer before the others. A position at the end of an
        # epoch restores to the next epoch, so do not save one here.
        ended = any(ends) if self._restores_only_itself else ends[0]
        if not ended and self.ledger.steps % self._schedule.save_every == 0:
            self._save(ended=False)
        if self._schedule.step_ms:
            self._pause.wait(self._schedule.step_ms / 1000)
        return False

    def _save(self, ended: bool) -> None:
        at = (self.ledger.epoch, self.ledger.steps)
        self._checkpoint = Checkpoint(self.consumers.positions(), *at, ended)

    def _due(self) -> Fault | None:
        """Inject the faults that are due.

        Return the next one if the trainer itself must apply it.
        """
        while self._pending and self._pending[0].step <= self._taken:
            fault = self._pending.pop(0)
            if fault.kind in {"crash_trainer", "rewind_trainer"}:
                return fault
            self.injector.inject(fault)
        return None

    def _crash(self, fault: Fault) -> None:
        saved = self._checkpoint
        assert saved is not None
        before = len(self.consumers)
        self.consumers.crash()
        after = fault.consumers or before
        note = f"{before} -> {after} consumers, sidecars {fault.sidecars}"
        self.injector.applied.append(Applied("crash_trainer", time.monotonic(), note))
        if after != before or fault.sidecars != "stay":
            with self._fleet.lock:
                if fault.sidecars != "linger":
                    for process in self._fleet.sidecars:
                        self._fleet.kill(process)
                self._fleet.start_sidecars(after)
        self.consumers = self._new_consumers()
        self.consumers.connect(self._restored(saved, after))
        self.ledger.restore(saved.epoch, saved.steps, saved.ended)

    def _rewind(self, _: Fault) -> None:
        """Restore the last checkpoint in the same processes."""
        saved = self._checkpoint
        assert saved is not None
        self.consumers.rewind(self._restored(saved, len(self.consumers)))
        note = f"to epoch {saved.epoch} step {saved.steps}"
        self.injector.applied.append(Applied("rewind_trainer", time.monotonic(), note))
        self.ledger.restore(saved.epoch, saved.steps, saved.ended)

    def _restored(self, saved: Checkpoint, consumers: int) -> Sequence[bytes]:
        """Return the positions to restore: one for all, unless each consumer has its own order."""
        if self._restores_only_itself and len(saved.positions) > 1:
            return saved.positions
        saver = 0 if self._topology.whole else self._schedule.saver
        return [saved.positions[saver % len(saved.positions)]] * consumers

    @property
    def _restores_only_itself(self) -> bool:
        """Whether a consumer's position restores that consumer alone."""
        return self._topology.parallel

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
            self._pause.wait(0.1)
        self._outcome.problems.append(f"slots are still in use after the end: {fills}")


class UnevenSteps(Exception):
    """The consumers had different numbers of steps."""


def run(
    schedule: Schedule,
    forks: Forks,
    mutants: Mapping[str, str] | None = None,
    watch: Callable[[Fleet], None] | None = None,
) -> Outcome:
    """Run a schedule. Errors of the product go into the outcome and are not raised.

    Args:
        schedule: topology, dataset and faults.
        forks: what starts the processes.
        mutants: see `Fleet`.
        watch: called with the processes before the first step.
    """
    began = time.monotonic()
    outcome = Outcome(schedule, Verdict())
    fleet: Fleet | None = None
    try:
        fleet = Fleet(forks, schedule, mutants)
        outcome.folder = str(fleet.folder)
        if watch is not None:
            watch(fleet)
        with _stacks_on_hang(schedule.deadline, outcome):
            _run(schedule, fleet, outcome, began + schedule.deadline)
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


def _run(schedule: Schedule, fleet: Fleet, outcome: Outcome, end: float) -> None:
    loops = [_Loop(schedule, fleet, outcome, end, job) for job in range(schedule.topology.jobs)]
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


def _indices_of(flags: Sequence[bool]) -> list[int]:
    return [i for i, flag in enumerate(flags) if flag]


__all__ = ["ConsumerTimeout", "Outcome", "Rows", "UnevenSteps", "run"]
