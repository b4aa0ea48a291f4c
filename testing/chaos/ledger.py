"""Every row that the consumers got, by the lineage that counts: a restore takes back what came
after the position. What it finds wrong it says in words and counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from testing.chaos import rows
from testing.chaos.consumers import Rows
from testing.chaos.reference import Reference
from testing.chaos.schedule import Schedule


@dataclass(frozen=True)
class Step:
    """Row numbers of each consumer; None: it had seen the epoch's end (whole elements only)."""

    taken: tuple[tuple[int, ...] | None, ...]


@dataclass
class Verdict:
    """What a ledger found.

    Attributes:
        delivered: rows of complete epochs, those of other lineages left out.
        received: all rows.
        lost: rows that an epoch ended without.
        repeated: rows that came again in an epoch.
        damaged: rows with other bytes than they should have.
        epochs: that came to their end.
        complaints: the first few things that were wrong, in words.
    """

    delivered: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    damaged: int = 0
    epochs: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing was wrong."""
        return not (self.lost or self.repeated or self.damaged or self.complaints)

    def add(self, other: Verdict) -> None:
        """Count what another ledger found, too."""
        for name in ("delivered", "received", "lost", "repeated", "damaged", "epochs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for text in other.complaints:
            self.complain(text)

    def complain(self, text: str) -> None:
        """Note something that is wrong."""
        if len(self.complaints) < 12:
            self.complaints.append(text)


class Ledger:
    """What was delivered; `commit` after each step, `end_epoch` when all saw the end."""

    def __init__(self, schedule: Schedule) -> None:
        self.verdict = Verdict()
        self.epoch = 0
        self._schedule = schedule
        self._steps: list[Step] = []
        self._before: dict[int, list[Step]] = {}  # epochs that have ended
        self._dropped: dict[int, int] = {}  # rows that they rightly ended without
        self._reference = self._new_reference()
        self._order_lost = False

    @property
    def steps(self) -> int:
        """Of the running epoch, or of the one that has just ended."""
        return len(self._before.get(self.epoch, self._steps))

    def begin_epoch(self) -> None:
        """The next epoch begins, or goes on where a restore has set it."""
        if self.epoch in self._before:
            self.epoch += 1
            self._steps = []
            self._rebuild()

    def commit(self, units: Sequence[list[Rows] | None]) -> None:
        """A step that all consumers took."""
        taken = tuple(
            None if each is None else tuple(self._read(consumer, each, len(units)))
            for consumer, each in enumerate(units)
        )
        self._steps.append(Step(taken))
        self._compare(self._steps[-1])

    def restore(self, epoch: int, steps: int, ended: bool) -> None:
        """Everything behind this point is taken back."""
        kept = [*self._before.get(epoch, []), *(self._steps if epoch == self.epoch else [])]
        self._before = {e: s for e, s in self._before.items() if e < epoch}
        self.epoch, self._steps = epoch, kept[:steps]
        self._rebuild()
        if ended:
            self._before[epoch] = self._steps

    def end_epoch(self, consumers: int) -> None:
        """All consumers have seen the end."""
        if not self._order_lost and not self._reference.over(consumers):
            self.verdict.complain(f"epoch {self.epoch} ended {self._reference.left} rows early")
        drop = self._schedule.topology.remainder == "drop" and not self._schedule.topology.whole
        self._dropped[self.epoch] = self._reference.left if drop else 0
        self._settle()  # no checkpoint older than this epoch's end is kept
        self._before[self.epoch] = self._steps
        self._steps = []

    def close(self) -> Verdict:
        """Count the rows of all epochs that ended."""
        self._settle()
        return self.verdict

    def _settle(self) -> None:
        """Count the epochs that nothing can take back any more, and forget them."""
        for epoch, steps in sorted(self._before.items()):
            self.verdict.epochs += 1
            self._count(epoch, steps)
        self._before.clear()

    # Inside.

    def _read(self, consumer: int, units: Sequence[Rows], consumers: int) -> list[int]:
        """The row numbers of a step, whose bytes are checked; padding is left out."""
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
                    self.verdict.complain(f"epoch {self.epoch}: padding before a row")
                numbers.append(number)
                self._check_row(consumer, columns, i, number)
        self.verdict.received += len(numbers)
        full = 1 if topology.whole else topology.batch // consumers
        fixed = topology.remainder == "pad" and not topology.whole
        if padded and (not fixed or len(numbers) + padded != full):
            self.verdict.complain(f"epoch {self.epoch}: {padded} rows of padding out of place")
        return numbers

    def _check_padding(self, columns: Rows, i: int) -> None:
        if columns["data"][i].any() or columns["epoch"][i]:
            self.verdict.complain(f"epoch {self.epoch}: padding that is not zero")

    def _check_row(self, consumer: int, columns: Rows, i: int, number: int) -> None:
        topology, data = self._schedule.topology, self._schedule.data
        split, row = rows.split_and_row(number)
        key = consumer if topology.parallel else None
        seed = rows.context_seed(topology.seed, self.epoch, key)
        wanted = rows.element(seed, self.epoch, split, row, data.row_bytes, data.text)
        for name, value in wanted.items():
            if not np.array_equal(columns[name][i], value):
                self.verdict.damaged += 1
                self.verdict.complain(
                    f"epoch {self.epoch} row {split}:{row}: {name!r} is not what the dataset makes"
                )
                return

    def _compare(self, step: Step) -> None:
        if self._order_lost:
            return
        complaint = self._reference.accept(len(step.taken), step.taken)
        if complaint is not None:
            self._order_lost = True
            self.verdict.complain(f"epoch {self.epoch} step {len(self._steps)}: {complaint}")

    def _rebuild(self) -> None:
        self._reference = self._new_reference()
        self._order_lost = False
        for step in self._steps:
            if self._reference.accept(len(step.taken), step.taken) is not None:
                self._order_lost = True  # has been complained of
                return

    def _new_reference(self) -> Reference:
        return Reference(self._schedule.topology, self._schedule.data, self.epoch)

    def _count(self, epoch: int, steps: Sequence[Step]) -> None:
        """Exactly once: over all consumers, or for each of them in parallel epochs."""
        topology, data = self._schedule.topology, self._schedule.data
        wanted = {
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
        missing = sum(len(wanted - group.keys()) for group in groups)
        self.verdict.lost += max(0, missing - self._dropped.pop(epoch, 0))
