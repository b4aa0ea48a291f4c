"""A ledger of every row that the consumers received.

A restore removes the rows after the restored position. The ledger counts every difference from the
reference and describes the first ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from testing.chaos import rows
from testing.chaos.consumers import Rows
from testing.chaos.reference import MixedReference, Reference
from testing.chaos.schedule import Schedule


@dataclass(frozen=True)
class Step:
    """Row numbers of each consumer; None after the end of the epoch (whole elements only)."""

    taken: tuple[tuple[int, ...] | None, ...]


@dataclass
class Verdict:
    """The results of a ledger.

    Attributes:
        delivered: rows of complete epochs, without rows that a restore removed.
        received: all rows.
        lost: rows that were missing at the end of an epoch.
        repeated: rows that arrived more than once in an epoch.
        damaged: rows with wrong bytes.
        epochs: complete epochs.
        violations: descriptions of the first problems.
    """

    delivered: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    damaged: int = 0
    epochs: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not (self.lost or self.repeated or self.damaged or self.violations)

    def add(self, other: Verdict) -> None:
        """Add the results of another ledger."""
        for name in ("delivered", "received", "lost", "repeated", "damaged", "epochs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for text in other.violations:
            self.add_violation(text)

    def add_violation(self, text: str) -> None:
        """Record a problem."""
        if len(self.violations) < 12:
            self.violations.append(text)


class Ledger:
    """The delivered rows.

    Call `commit` after each step and `end_epoch` after the end of an epoch.

    `keeps_epochs`: a checkpoint of any earlier epoch may be restored. Default: of the last one.
    """

    def __init__(self, schedule: Schedule, *, keeps_epochs: bool = False) -> None:
        self.verdict = Verdict()
        self.epoch = 0
        self._schedule, self._keeps_epochs = schedule, keeps_epochs
        self._steps: list[Step] = []
        self._before: dict[int, list[Step]] = {}  # complete epochs
        self._dropped: dict[int, int] = {}  # rows that the `drop` remainder removes
        self._reference = self._new_reference()
        self._order_lost = False

    @property
    def steps(self) -> int:
        """Number of steps of the current epoch, or of the one that has just ended."""
        return len(self._before.get(self.epoch, self._steps))

    def begin_epoch(self) -> None:
        """Begin the next epoch, or continue the restored one."""
        if self.epoch in self._before:
            self.epoch += 1
            self._steps = []
            self._rebuild()

    def commit(self, units: Sequence[list[Rows] | None]) -> None:
        """Record a step that all consumers took."""
        taken = tuple(
            None if each is None else tuple(self._read(consumer, each, len(units)))
            for consumer, each in enumerate(units)
        )
        self._steps.append(Step(taken))
        self._compare(self._steps[-1])

    def restore(self, epoch: int, steps: int, ended: bool) -> None:
        """Remove everything after this point."""
        kept = [*self._before.get(epoch, []), *(self._steps if epoch == self.epoch else [])]
        self._before = {e: s for e, s in self._before.items() if e < epoch}
        self.epoch, self._steps = epoch, kept[:steps]
        self._rebuild()
        if ended:
            self._before[epoch] = self._steps

    def end_epoch(self, consumers: int) -> None:
        """Record that all consumers have reached the end of the epoch."""
        if not self._order_lost and not self._reference.over(consumers):
            self.verdict.add_violation(
                f"epoch {self.epoch} ended {self._reference.left} rows early"
            )
        drop = self._schedule.topology.remainder == "drop" and not self._schedule.topology.whole
        self._dropped[self.epoch] = self._reference.left if drop else 0
        if not self._keeps_epochs:
            self._settle()  # older checkpoints are not kept
        self._before[self.epoch] = self._steps
        self._steps = []

    def close(self) -> Verdict:
        """Count the rows of all complete epochs and return the verdict."""
        self._settle()
        return self.verdict

    def _settle(self) -> None:
        """Count the epochs that no restore can remove, and drop their steps."""
        for epoch, steps in sorted(self._before.items()):
            self.verdict.epochs += 1
            self._count(epoch, steps)
        self._before.clear()

    # Private parts.

    def _read(self, consumer: int, units: Sequence[Rows], consumers: int) -> list[int]:
        """Return the row numbers of a step without padding, and check the rows' bytes."""
        topology = self._schedule.topology
        numbers: list[int] = []
        padded = 0
        for unit in units:
            columns = {k: v[None] for k, v in unit.items()} if topology.whole else unit
            for i, number in enumerate(columns["id"].tolist()):
                if not number:
                    padded += 1
                    self._check_padding(columns, i)
                    continue
                if padded:
                    self.verdict.add_violation(f"epoch {self.epoch}: padding before a row")
                numbers.append(number)
                self._check_row(consumer, columns, i, number)
        self.verdict.received += len(numbers)
        full = topology.batch // consumers
        fixed = topology.remainder == "pad" and not topology.whole
        if padded and (not fixed or len(numbers) + padded != full):
            self.verdict.add_violation(f"epoch {self.epoch}: {padded} misplaced rows of padding")
        return numbers

    def _check_padding(self, columns: Rows, i: int) -> None:
        if columns["data"][i].any() or columns["epoch"][i]:
            self.verdict.add_violation(f"epoch {self.epoch}: padding that is not zero")

    def _check_row(self, consumer: int, columns: Rows, i: int, number: int) -> None:
        topology, data = self._schedule.topology, self._schedule.data
        split, row = rows.split_and_row(number)
        key = consumer if topology.parallel else None
        seed = rows.context_seed(topology.seed, self.epoch, key)
        expected = rows.element(seed, self.epoch, split, row, data.row_bytes, data.text)
        for name, value in expected.items():
            if not np.array_equal(columns[name][i], value):
                self.verdict.damaged += 1
                self.verdict.add_violation(
                    f"epoch {self.epoch} row {split}:{row}: wrong value of {name!r}"
                )
                return

    def _compare(self, step: Step) -> None:
        if self._order_lost:
            return
        violation = self._reference.accept(len(step.taken), step.taken)
        if violation is not None:
            self._order_lost = True
            self.verdict.add_violation(f"epoch {self.epoch} step {len(self._steps)}: {violation}")

    def _rebuild(self) -> None:
        self._reference = self._new_reference()
        self._order_lost = False
        for step in self._steps:
            if self._reference.accept(len(step.taken), step.taken) is not None:
                self._order_lost = True  # already reported
                return

    def _new_reference(self) -> Reference | MixedReference:
        topology, data = self._schedule.topology, self._schedule.data
        kind = MixedReference if topology.weights else Reference
        return kind(topology, data, self.epoch)

    def _count(self, epoch: int, steps: Sequence[Step]) -> None:
        """Count lost and repeated rows: over all consumers, or of each one in parallel epochs."""
        topology, data = self._schedule.topology, self._schedule.data
        expected = {
            rows.row_id(split, row)
            for split in range(len(data.rows))
            for row in range(rows.rows_in(data.rows, data.vary, epoch, split))
        }
        groups: list[Counter[int]] = [Counter()]
        if topology.parallel:
            groups = [Counter() for _ in range(topology.consumers)]
        for step in steps:
            for consumer, taken in enumerate(step.taken):
                groups[consumer if topology.parallel else 0].update(taken or ())
        self.verdict.delivered += sum(group.total() for group in groups)
        self.verdict.repeated += sum(group.total() - len(group) for group in groups)
        missing = sum(len(expected - group.keys()) for group in groups)
        self.verdict.lost += max(0, missing - self._dropped.pop(epoch, 0))
