"""The rows of a step of a mixture, from a saved position. Pure; see `step_rows`.

The rows that a step takes of each list of splits follow from the weights in force. So the rows of
all lists before a step are those of the position, less or more those of the steps between. A
position has the weights since their last change before it. Those of earlier steps are not known.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import mixture
from distributed_input.order.mixture import Counts, Mixer
from distributed_input.order.repeated_splits import RepeatedSplits
from distributed_input.order.share import Share, share_of
from distributed_input.order.split_borders import CONTRADICTION, RowRange, SplitBorders

_GRID = 256  # steps
_MOST_STEPS = 10_000_000


def add_sources(job: types_pb2.Job, position: trainer_pb2.Position) -> None:
    """Add the sources and the weights of a position to its job, in place.

    Raises:
        PositionError: the position has no weights, or it is damaged.
    """
    for one in position.sources:
        entry = types_pb2.EntryPoint(source=one.name)
        job.sources.append(types_pb2.Job(entry_point=entry, num_splits=one.num_splits))
    splits = [one.num_splits for one in job.sources]
    if sum(splits) != job.num_splits or min(splits) < job.partitions:
        raise PositionError("the checkpoint's position is damaged: its sources have other splits")
    if not position.weights:
        raise PositionError(
            "the position was saved in the first step of a mixture, and has no weights: use a "
            "later checkpoint"
        )
    job.weights.extend(position.weights)
    job.exhaustion = position.exhaustion


class MixedEpoch:
    """The steps of a position's epoch of a mixture.

    Args:
        position: a saved position.
        job: its job, with the sources and the weights.

    Attributes:
        first: the first step whose rows are known.
        lists: the splits of each list, in order.

    Raises:
        PositionError: the position's rows do not fit its weights.
    """

    def __init__(self, position: trainer_pb2.Position, job: types_pb2.Job) -> None:
        self.first, self.lists = job.weights[0].step, mixture.deal(job, position.epoch)
        self._position, self._job = position, job
        self._mixer = Mixer(job, job.weights)
        base = np.array(list(position.base_rows) or [0] * len(self.lists), np.int64)
        self._check_distance(position.base_step)
        start = base - self._mixer.between(self.first, position.base_step)
        if start.min() < 0 or (self.first == 0 and start.any()):
            raise PositionError(CONTRADICTION)
        self._grid = [start]  # rows before every `_GRID`th step

    def rows_before(self, step: int) -> Counts:
        """Return the rows of each list before a step. Raises PositionError."""
        if step < self.first:
            raise self._unknown(f"step {step}")
        self._check_distance(step)
        at = (step - self.first) // _GRID
        while len(self._grid) <= at:
            last = self.first + (len(self._grid) - 1) * _GRID
            self._grid.append(self._grid[-1] + self._mixer.between(last, last + _GRID))
        return self._grid[at] + self._mixer.between(self.first + at * _GRID, step)

    def rows_of_step(
        self, step: int, lengths: Mapping[int, int], consumer: int | None
    ) -> list[RowRange]:
        """Return the rows of a step; see `step_rows.rows_of_step`."""
        before, takes = self.rows_before(step), self._mixer.takes(step)
        shares = self._shares(step, consumer)
        if not self._exists(step, before + takes, lengths):
            return []
        found: list[RowRange] = []
        for share in shares:
            for one, rows in mixture.turns(share.partitions, len(self._job.sources), takes):
                found += self._borders(one, lengths).locate(int(before[one]), rows)
        return found

    def step_of(self, split: int, row: int, lengths: Mapping[int, int]) -> int | None:
        """Return the step that has a row; see `step_rows.step_of_row`."""
        one = next(at for at, splits in enumerate(self.lists) if split in splits)
        splits = self.lists[one]
        at = row + sum(lengths[splits[before]] for before in range(splits.index(split)))
        if at < self.rows_before(self.first)[one]:
            raise self._unknown("the step of the row")
        stop = self._position.step
        if self._job.exhaustion == types_pb2.STOP:
            stop = sum(lengths.values()) // self._job.global_batch_size
        self.rows_before(max(stop, self.first))
        near = bisect_right(self._grid, at, key=lambda rows: rows[one]) - 1
        rows = self._grid[near][one]
        for step in range(self.first + near * _GRID, stop):
            rows += self._mixer.takes(step)[one]
            if rows > at:
                return step
        return None

    def splits(self, lengths: Mapping[int, int]) -> list[Iterator[int]]:
        """Return the splits that steps may have rows of; see `step_rows.splits_of`."""
        rows = self.rows_before(max(self._position.step, self.first))
        return [
            _read(splits, int(count), lengths)
            for splits, count in zip(self.lists, rows, strict=True)
        ]

    def _borders(self, one: int, lengths: Mapping[int, int]) -> SplitBorders:
        return SplitBorders(self._position, one, self.lists[one], lengths)

    def _exists(self, step: int, rows: Counts, lengths: Mapping[int, int]) -> bool:
        """Return whether each list has so many rows, which a step needs."""
        if mixture.never_ends(self._job) or step < self._position.step:
            return True
        if self._job.exhaustion == types_pb2.DROP_SOURCE:
            raise PositionError(
                f"step {step} is behind the position, and a source of the mixture may end before "
                "it (spec.mixture.onExhausted: Drop): use a later checkpoint"
            )
        lists = [self._borders(one, lengths) for one in range(len(self.lists))]
        if any(one.total is not None and one.total < rows[at] for at, one in enumerate(lists)):
            return False  # without the lengths of the others
        return all(one.has(int(rows[at])) for at, one in enumerate(lists))

    def _shares(self, step: int, consumer: int | None) -> list[Share]:
        """Return the shares that are asked for."""
        trainers, since = self._position.consumers, self._position.trainers_since
        if step < since and consumer is None:
            return [share_of(self._job, 0, 1)]
        if step < since:
            raise PositionError(
                f"step {step} is before a restore, or a change of weights, at step {since}, and "
                "the checkpoint does not show how many trainers there were before. Ask for the "
                "rows of all trainers, or use an earlier checkpoint"
            )
        if consumer is not None and consumer >= trainers:
            raise PositionError(f"trainer {consumer}: there were {trainers} trainers, from 0")
        asked = range(trainers) if consumer is None else [consumer]
        return [share_of(self._job, one, trainers) for one in asked]

    def _check_distance(self, step: int) -> None:
        if step - self.first > _MOST_STEPS:
            raise PositionError(
                f"step {step} is more than {_MOST_STEPS:,} steps behind step {self.first}, from "
                "which the weights of the mixture are known: that takes too long to compute"
            )

    def _unknown(self, what: str) -> PositionError:
        return PositionError(
            f"{what} is before step {self.first}, at which the weights of the mixture changed, and "
            "the checkpoint does not have those before. Use a checkpoint from before this step"
        )


def _read(splits: Sequence[int], rows: int, lengths: Mapping[int, int]) -> Iterator[int]:
    """Yield the splits of a list; if they repeat, until they have so many rows."""
    before = empty = at = 0
    while at < len(splits):
        if isinstance(splits, RepeatedSplits):
            if before >= rows:
                break
            if empty > splits.most_empty:
                raise PositionError(CONTRADICTION)
        yield splits[at]
        empty = 0 if lengths[splits[at]] else empty + 1
        before += lengths[splits[at]]
        at += 1


@functools.lru_cache(maxsize=4)
def mixed_epoch(position: bytes, job: bytes) -> MixedEpoch:
    """Return the steps of a serialized position's epoch, of its serialized job."""
    return MixedEpoch(trainer_pb2.Position.FromString(position), types_pb2.Job.FromString(job))
