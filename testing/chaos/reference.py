"""The rows that each step of an epoch must have, from `order` and the dataset alone.

A plain simulation: each partition is a list of rows, and consumers take rows from it. It shares the
`deal` function with the product and no other code. It has no positions: after a restore, another
number of consumers takes the next steps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.order import mixture
from distributed_input.order import splits as assignment
from testing.chaos import rows
from testing.chaos.schedule import Data, Topology

Taken = Sequence[Sequence[int] | None]
"""Row numbers of each consumer in one step; None at the end of the epoch."""


class Reference:
    """One epoch.

    Call `accept` for every step, in order; `over` returns whether the epoch can end.
    """

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
        """Number of rows that no step has taken yet, over all consumers."""
        return sum(len(p) for partitions in self._left for p in partitions)

    def accept(self, consumers: int, taken: Taken) -> str | None:
        """Take the rows of one step. Return a description if they are not the required rows."""
        if consumers != self._consumers:
            self._consumers = consumers
            self._plans.clear()  # other consumers begin a new step
        for consumer, got in enumerate(taken):
            required = self._required_rows(consumer)
            if list(got or []) != required:
                shown = f"{_format_rows(got)}, not {_format_rows(required)}"
                return f"consumer {consumer} got rows {shown}"
        return None

    def over(self, consumers: int) -> bool:
        """Return whether no step is left for this number of consumers."""
        if self._topology.remainder != "drop" or self._topology.whole:
            return not self.left
        batch = self._batch(consumers)
        return any(
            sum(len(self._of(c)[p]) for p in self._own(c, consumers)) < batch
            for c in range(consumers)
        )

    def end_of(self, consumer: int) -> bool:
        """Return whether a consumer of whole elements has none left."""
        return not any(self._of(consumer)[p] for p in self._own(consumer, self._consumers))

    def _required_rows(self, consumer: int) -> list[int]:
        partitions = self._of(consumer)
        own = self._own(consumer, self._consumers)
        if not self._topology.whole:
            return _batch_of(partitions, own, self._batch(self._consumers))
        plan = self._plans.setdefault(consumer, deque())
        out: list[int] = []
        while len(out) < self._topology.replicas:
            if not plan:
                plan.extend(_partition_order(partitions, own))
            if not plan:
                break
            out.append(partitions[plan.popleft()].popleft())
        return out

    def _of(self, consumer: int) -> list[deque[int]]:
        return self._left[consumer if self._topology.parallel else 0]

    def _own(self, consumer: int, consumers: int) -> list[int]:
        count = self._topology.partitions
        if self._topology.parallel:
            return list(range(count))
        return assignment.partitions_of(consumer, consumers, count)

    def _batch(self, consumers: int) -> int:
        if self._topology.whole:
            return self._topology.replicas
        return self._topology.batch // consumers


class MixedReference:
    """One epoch of a mixture; see `Reference`. It shares `order.mixture` with the product."""

    def __init__(self, topology: Topology, data: Data, epoch: int) -> None:
        self._sources, self._partitions = len(topology.weights), topology.partitions
        each = len(data.rows) // self._sources
        job = types_pb2.Job(
            seed=topology.seed,
            partitions=topology.partitions,
            global_batch_size=topology.batch,
            num_splits=len(data.rows),
            sources=[types_pb2.Job(num_splits=each)] * self._sources,
            exhaustion=types_pb2.STOP,
        )
        self._job, self._topology = job, topology
        self._lists = [
            deque(
                rows.row_id(split, row)
                for split in splits
                for row in range(rows.rows_in(data.rows, data.vary, epoch, split))
            )
            for splits in mixture.deal(job, epoch)
        ]
        self._log = [_entry(0, topology.weights)]
        self._step = 0

    @property
    def left(self) -> int:
        """Number of rows that no step has taken yet."""
        return sum(map(len, self._lists))

    def accept(self, consumers: int, taken: Taken) -> str | None:
        """Take the rows of one step. Return a description if they are not the required rows."""
        takes = self._takes()
        if takes is None:
            return "a step behind the end"
        self._step += 1
        for consumer, got in enumerate(taken):
            own = assignment.partitions_of(consumer, consumers, self._partitions)
            lists = [s * self._partitions + p for p in own for s in range(self._sources)]
            required = [self._lists[one].popleft() for one in lists for _ in range(takes[one])]
            if list(got or []) != required:
                shown = f"{_format_rows(got)}, not {_format_rows(required)}"
                return f"consumer {consumer} got rows {shown}"
        return None

    def skip(self) -> bool:
        """Take the rows of one step, whatever they are. Return False if there is none."""
        takes = self._takes()
        for rows_of, take in zip(self._lists, takes or (), strict=False):
            for _ in range(take):
                rows_of.popleft()
        self._step += 1
        return takes is not None

    def over(self, consumers: int) -> bool:
        """Return whether no step is left, for any number of consumers."""
        del consumers
        return self._takes() is None

    def _takes(self) -> list[int] | None:
        """Return the rows that the next step takes of each list; None if there is no such step."""
        weights = dict(self._topology.changes).get(self._step)
        if weights is not None:
            before = [one for one in self._log if one.step < self._step]
            self._log = [*before, _entry(self._step, weights)]
        while self._log:
            takes = mixture.Mixer(self._job, self._log).takes(self._step).tolist()
            pairs = zip(self._lists, takes, strict=True)
            short = {at // self._partitions for at, (one, n) in enumerate(pairs) if len(one) < n}
            if not short:
                return [int(take) for take in takes]
            if self._topology.exhausted == "stop":
                return None
            self._log = mixture.without(self._log, self._step, short)
        return None


def _entry(step: int, weights: Sequence[int]) -> types_pb2.Weights:
    return types_pb2.Weights(step=step, weights=mixture.whole_weights(weights))


def mixed_steps(topology: Topology, data: Data) -> list[int]:
    """Return the number of steps of each epoch of a mixture."""
    found = []
    for epoch in range(topology.epochs):
        one, steps = MixedReference(topology, data, epoch), 0
        while one.skip():
            steps += 1
        found.append(steps)
    return found


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
    """Take the same number of rows from each partition. If one runs out, the others continue."""
    quota = max(1, batch // len(own))
    out: list[int] = []
    while len(out) < batch and any(partitions[p] for p in own):
        for p in own:
            for _ in range(min(quota, batch - len(out), len(partitions[p]))):
                out.append(partitions[p].popleft())
    return out


def _partition_order(partitions: Sequence[deque[int]], own: Sequence[int]) -> list[int]:
    """Return the partitions that give the elements of one step, in order."""
    have = Counter({p: len(partitions[p]) for p in own})
    out: list[int] = []
    while len(out) < len(own) and have.total():
        for p in own:
            if have[p] and len(out) < len(own):
                have[p] -= 1
                out.append(p)
    return out


def _format_rows(numbers: Sequence[int] | None) -> str:
    if numbers is None:
        return "(end)"
    shown = [":".join(map(str, rows.split_and_row(n))) for n in numbers[:6]]
    return f"[{' '.join(shown)}{' ...' if len(numbers) > 6 else ''}] ({len(numbers)})"
