"""One schedule from start to verdict."""

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

from testing.chaos.consumers import Consumers, Hung, Rows, Saved
from testing.chaos.faults import Applied, Injector
from testing.chaos.fleet import Fleet
from testing.chaos.ledger import Ledger, Verdict
from testing.chaos.logcheck import Replay, replays, suspicious
from testing.chaos.schedule import Fault, Schedule
from testing.processes.forks import Forks, ProcessError

_RING_SECONDS = 6.0
_STEPS_KEPT = 2000
_SILENT_SECONDS = 4.0  # a sidecar that has no reader says nothing; one that is starved little


@dataclass
class Outcome:
    """What became of a schedule.

    Attributes:
        problems: all that went wrong, in words; empty: it held.
        steps: (when the step was complete, seconds that it took) by time.monotonic(); the last
            ones: in a soak they are not to be what grows.
        folder: logs, kept where something went wrong.
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
    def good(self) -> bool:
        """Nothing went wrong."""
        return self.verdict.good and not self.problems


class _Loop:
    """The training loop of one job of a schedule over all its lives; faults come by the first's."""

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
        self._taken = 0  # steps of all lives
        self._saved: Saved | None = None
        self._pause = threading.Event()
        self._last_begins = time.monotonic() + schedule.lasting
        self.consumers = self._new_consumers()

    def run(self) -> None:
        """All epochs; returns when the last has ended."""
        self.consumers.connect(None)
        self._save(ended=False)
        while self._goes_on():
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

    def _goes_on(self) -> bool:
        """Whether there is another epoch on the lineage that counts."""
        if not self._topology.epochs:
            return time.monotonic() < self._last_begins
        saved = self._saved
        ended = 0 if saved is None or not saved.ended else saved.epoch + 1
        return ended < self._topology.epochs

    def _step(self) -> bool:
        """One step of all; whether the epoch has ended."""
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
            raise Uneven(f"{at}: consumers {_where(ends)} saw the end, the others got a batch")
        self.ledger.commit(units)
        self._taken += 1
        # Whole elements end for one consumer before another, and a position that is an epoch's end
        # restores to the next: no checkpoint of this one.
        over = any(ends) if self._each_its_own else ends[0]
        if not over and self.ledger.steps % self._schedule.save_every == 0:
            self._save(ended=False)
        if self._schedule.step_ms:
            self._pause.wait(self._schedule.step_ms / 1000)
        return False

    def _save(self, ended: bool) -> None:
        at = (self.ledger.epoch, self.ledger.steps)
        self._saved = Saved(self.consumers.positions(), *at, ended)

    def _due(self) -> Fault | None:
        """Inject what is due; what the trainer does itself is returned."""
        while self._pending and self._pending[0].step <= self._taken:
            fault = self._pending.pop(0)
            if fault.kind in {"crash_trainer", "rewind_trainer"}:
                return fault
            self.injector.inject(fault)
        return None

    def _crash(self, fault: Fault) -> None:
        saved = self._saved
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
        """The loop goes back to its last checkpoint, in the same processes."""
        saved = self._saved
        assert saved is not None
        self.consumers.rewind(self._restored(saved, len(self.consumers)))
        note = f"to epoch {saved.epoch} step {saved.steps}"
        self.injector.applied.append(Applied("rewind_trainer", time.monotonic(), note))
        self.ledger.restore(saved.epoch, saved.steps, saved.ended)

    def _restored(self, saved: Saved, consumers: int) -> Sequence[bytes]:
        """Any one's position restores all, but where each stands in an order of its own."""
        if self._each_its_own and len(saved.positions) > 1:
            return saved.positions
        saver = 0 if self._topology.whole else self._schedule.saver
        return [saved.positions[saver % len(saved.positions)]] * consumers

    @property
    def _each_its_own(self) -> bool:
        """A consumer's position restores that consumer alone."""
        return self._topology.parallel or self._topology.order == "any"

    def _new_consumers(self) -> Consumers:
        folders = [self._fleet.folder_of(c) for c in range(len(self._fleet.sidecars))]
        return Consumers(folders, self._schedule, self._end, self.job)

    def check_rings(self) -> None:
        """All slots are given back once nobody holds a batch.

        A sidecar that came when the trainer had all its batches has no reader and tells nothing.
        """
        began = time.monotonic()
        fills: list[float] = []
        while (since := time.monotonic() - began) < _RING_SECONDS:
            told = self._fleet.status().consumers
            fills = [c.last.buffer_fill for c in told]
            wanted = len(self._fleet.sidecars) * self._topology.jobs
            everyone = len(told) == wanted or since > _SILENT_SECONDS
            current = everyone and all(c.age_seconds < since for c in told)
            if current and not any(fills):
                return
            self._pause.wait(0.1)
        self._outcome.problems.append(f"rings are not empty after the end: {fills}")


class Uneven(Exception):
    """Consumers saw another number of steps."""


def run(
    schedule: Schedule,
    forks: Forks,
    mutants: Mapping[str, str] | None = None,
    watch: Callable[[Fleet], None] | None = None,
) -> Outcome:
    """Run a schedule; never raises for what the product does wrong.

    Args:
        mutants: see `Fleet`.
        watch: gets the processes before the first step.
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
        if outcome.good:
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
    except Exception as error:  # noqa: BLE001 - whatever the product raised is the outcome
        outcome.problems.append(f"{type(error).__name__}: {error}")
    finally:
        first.injector.finish()
        outcome.applied, outcome.steps = first.injector.applied, list(first.steps)
        outcome.problems += [f"fault: {type(e).__name__}: {e}" for e in first.injector.errors]
        for loop in loops:
            loop.consumers.end()
            outcome.problems += [f"thread {name} is stuck" for name in loop.consumers.stuck()]
            outcome.verdict.add(loop.ledger.close())
        outcome.problems += outcome.verdict.complaints


@contextmanager
def _stacks_on_hang(seconds: float, outcome: Outcome) -> Iterator[None]:
    """Note where all threads of this process are, should it take longer."""
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


def _where(flags: Sequence[bool]) -> list[int]:
    return [i for i, flag in enumerate(flags) if flag]


__all__ = ["Hung", "Outcome", "Rows", "Uneven", "run"]
