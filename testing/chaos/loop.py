"""The training loop of one job, in real time (`run`) and in virtual time (`testing.delivery`)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from testing.chaos.consumers import Checkpoint, ConsumerGroup, Rows
from testing.chaos.faults import Injector
from testing.chaos.ledger import Ledger
from testing.chaos.schedule import Fault, Schedule


class UnevenSteps(Exception):
    """The consumers had different numbers of steps."""


class TrainingLoop:
    """The training loop of one job over all restarts. The first job's loop injects the faults.

    Attributes:
        consumers: the trainers since the last start.
    """

    consumers: ConsumerGroup

    def __init__(self, schedule: Schedule, injector: Injector, job: int) -> None:
        self.ledger = Ledger(schedule)
        self.injector = injector
        self.job = f"job-{job}" if job else ""
        self._schedule, self._topology = schedule, schedule.topology
        self._pending = [] if job else sorted(schedule.faults, key=lambda f: f.step)
        self._taken = 0  # over all restarts
        self._checkpoint: Checkpoint | None = None

    def _take(self) -> list[list[Rows] | None]:
        return self.consumers.step()

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _has_next_epoch(self) -> bool:
        """Return whether another epoch remains, counted from the last checkpoint."""
        saved = self._checkpoint
        ended = 0 if saved is None or not saved.ended else saved.epoch + 1
        return ended < self._topology.epochs

    def _begin(self) -> None:
        self.consumers.begin()
        self.ledger.begin_epoch()

    def _step(self) -> bool:
        """Take one step on all consumers; return whether the epoch has ended."""
        weights = dict(self._topology.changes).get(self.ledger.steps)
        if weights is not None:
            self.consumers.set_weights(weights)
            self.consumers.begin()
        units = self._take()
        ends = [each is None for each in units]
        if all(ends):
            self.ledger.end_epoch(len(units))
            return True
        if any(ends) and not self._topology.whole:
            at = f"epoch {self.ledger.epoch} step {self.ledger.steps}"
            raise UnevenSteps(f"{at}: consumers that saw the end, and others: {ends}")
        self.ledger.commit(units)
        self._taken += 1
        # Whole elements can end for one consumer before the others. A position at the end of an
        # epoch restores to the next epoch, so do not save one here.
        ended = any(ends) if self._topology.parallel else ends[0]
        if not ended and self.ledger.steps % self._schedule.save_every == 0:
            self._save(ended=False)
        if self._schedule.step_ms:
            self._sleep(self._schedule.step_ms / 1000)
        return False

    def _save(self, ended: bool) -> None:
        positions = self.consumers.positions()
        self._checkpoint = Checkpoint(positions, self.ledger.epoch, self.ledger.steps, ended)

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

    def _rewind(self) -> Checkpoint:
        """Restore the last checkpoint in the same processes, and return it."""
        saved, positions = self._checkpoint, self._positions(len(self.consumers))
        assert saved is not None
        assert positions is not None
        self.consumers.rewind(positions)
        self._restore_ledger()
        return saved

    def _restore_ledger(self) -> None:
        saved = self._checkpoint
        if saved is None:
            self.ledger.restore(0, 0, False)
        else:
            self.ledger.restore(saved.epoch, saved.steps, saved.ended)

    def _positions(self, consumers: int) -> Sequence[bytes] | None:
        """Return the positions to restore: one for all, unless each consumer has its own order.

        None: there is no checkpoint.
        """
        saved = self._checkpoint
        if saved is None:
            return None
        if self._topology.parallel and len(saved.positions) > 1:
            return saved.positions
        saver = 0 if self._topology.whole else self._schedule.saver
        return [saved.positions[saver % len(saved.positions)]] * consumers
