"""Which rows each step of an epoch must have, from `assignment` and the dataset alone.

A plain simulation: the rows of every partition in a list, and consumers that take from it. It
shares the deal with the product and no other code, and knows nothing of positions: a restore is
only that another number of consumers takes the next steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from distributed_input.api.hashing import mix
from distributed_input.assignment import splits as assignment
from testing.chaos import rows
from testing.chaos.schedule import Data, Topology

Taken = Sequence[Sequence[int] | None]
"""Row numbers of each consumer in one step; None: it saw the epoch's end."""


class Reference:
    """One epoch. `accept` is told every step, in order; `over` says whether there may be more."""

    def __init__(self, topology: Topology, data: Data, epoch: int) -> None:
        self._topology = topology
        self._consumers = 0
        lengths = [rows.rows_in(data.rows, data.vary, epoch, s) for s in range(len(data.rows))]
        keys = range(topology.consumers) if topology.parallel else [None]
        self._left = [_partitions(topology, lengths, epoch, key) for key in keys]
        self._plans: dict[int, deque[int]] = {}
        self.total = sum(lengths) * len(self._left)

    @property
    def left(self) -> int:
        """Rows that no step has taken yet, of all consumers."""
        return sum(len(p) for partitions in self._left for p in partitions)

    def accept(self, consumers: int, taken: Taken) -> str | None:
        """Take what the consumers got in a step; a complaint if it is not what they must get."""
        if consumers != self._consumers:
            self._consumers = consumers
            self._plans.clear()  # whoever cuts steps otherwise starts a step of its own
        if self._topology.order == "any":
            return self._accept_any(taken)
        for consumer, got in enumerate(taken):
            wanted = self._wanted(consumer)
            if list(got or []) != wanted:
                return f"consumer {consumer} got rows {_told(got)}, not {_told(wanted)}"
        return None

    def over(self, consumers: int) -> bool:
        """Whether no step is left for so many consumers."""
        if self._topology.remainder != "drop" or self._topology.whole:
            return not self.left
        batch = self._batch(consumers)
        return any(
            sum(len(self._of(c)[p]) for p in self._own(c, consumers)) < batch
            for c in range(consumers)
        )

    def end_of(self, consumer: int) -> bool:
        """Whether a consumer of whole elements has none left."""
        return not any(self._of(consumer)[p] for p in self._own(consumer, self._consumers))

    def _wanted(self, consumer: int) -> list[int]:
        partitions = self._of(consumer)
        own = self._own(consumer, self._consumers)
        if not self._topology.whole:
            return _batch_of(partitions, own, self._batch(self._consumers))
        plan = self._plans.setdefault(consumer, deque())
        if not plan:
            plan.extend(_turns(partitions, own))
        return [partitions[plan.popleft()].popleft()] if plan else []

    def _accept_any(self, taken: Taken) -> str | None:
        for consumer, got in enumerate(taken):
            partitions = self._of(consumer)
            own = self._own(consumer, self._consumers)
            here = sum(len(partitions[p]) for p in own)
            most = min(here, self._batch(self._consumers))
            for number in got or []:
                found = [p for p in own if partitions[p] and partitions[p][0] == number]
                if not found:
                    return f"consumer {consumer} got row {number}, which is next in none of {own}"
                partitions[found[0]].popleft()
            if len(got or []) != most:
                return f"consumer {consumer} got {len(got or [])} rows, not {most}"
        return None

    def _of(self, consumer: int) -> list[deque[int]]:
        return self._left[consumer if self._topology.parallel else 0]

    def _own(self, consumer: int, consumers: int) -> list[int]:
        count = self._topology.partitions
        if self._topology.parallel:
            return list(range(count))
        return assignment.partitions_of(consumer, consumers, count)

    def _batch(self, consumers: int) -> int:
        return self._topology.batch // consumers if not self._topology.whole else 1


def _partitions(
    topology: Topology, lengths: Sequence[int], epoch: int, consumer: int | None
) -> list[deque[int]]:
    seed = topology.seed if consumer is None else mix(topology.seed, consumer + 1)
    dealt = assignment.deal(seed, epoch, len(lengths), topology.partitions)
    return [
        deque(rows.row_id(split, row) for split in splits for row in range(lengths[split]))
        for splits in dealt
    ]


def _batch_of(partitions: Sequence[deque[int]], own: Sequence[int], batch: int) -> list[int]:
    """The same number of rows from every partition; where one has no more, the others go on."""
    quota = max(1, batch // len(own))
    out: list[int] = []
    while len(out) < batch and any(partitions[p] for p in own):
        for p in own:
            for _ in range(min(quota, batch - len(out), len(partitions[p]))):
                out.append(partitions[p].popleft())
    return out


def _turns(partitions: Sequence[deque[int]], own: Sequence[int]) -> list[int]:
    """The partitions that give the elements of one step, in order."""
    have = Counter({p: len(partitions[p]) for p in own})
    out: list[int] = []
    while len(out) < len(own) and have.total():
        for p in own:
            if have[p] and len(out) < len(own):
                have[p] -= 1
                out.append(p)
    return out


def _told(numbers: Sequence[int] | None) -> str:
    if numbers is None:
        return "(end)"
    told = [":".join(map(str, rows.split_and_row(n))) for n in numbers[:6]]
    return f"[{' '.join(told)}{' ...' if len(numbers) > 6 else ''}] ({len(numbers)})"
