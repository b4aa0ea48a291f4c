"""The order of the sources of a mixture: which rows of a step come from which source. Pure.

The rows of all partitions form one sequence: row j from the last change of weights on comes from
source `pattern[j mod D]`. D is the sum of the weights, which are whole numbers. In every prefix of
the sequence, each source has its share within one row: |rows - j * weight / D| < 1. A step takes
the next G rows of the sequence, whatever the number of trainers.

The rows of a step are cut into P parts of G/P rows, one for each partition. Which part a partition
gets changes pseudorandomly from step to step. Otherwise a pattern whose length fits that of a step
would always take the same source from a partition.

In each partition, every source has a list of splits of its own. The lists of a job are numbered
source by source: list s * P + p is that of source s in partition p.
"""

from __future__ import annotations

import functools
import heapq
import math
import numbers
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from distributed_input.api.errors import ConfigError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import splits
from distributed_input.order.repeated_splits import RepeatedSplits

MOST_PARTS = 10_000
"""Maximum of the sum of weights. Others are rounded to it."""
MOST_BORDERS = 256
"""Split borders that are kept of a list that never ends."""
_ROUNDING = 0.01
_TURN = 0x6D69_7874  # so that turns differ from other values of the same seed
_MOST_STEPS = 1024  # whose rows are computed at once

Counts = npt.NDArray[np.int64]


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Return whole numbers in the proportion of weights, in lowest terms.

    They are exact if their sum is at most MOST_PARTS. Otherwise they are rounded to this sum, and
    none above 0 becomes 0.

    Law: the result of the result is the result.

    Args:
        weights: finite, not negative, and not all 0. At most MOST_PARTS of them.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    whole = [int(one * math.lcm(*(one.denominator for one in exact))) for one in exact]
    whole = _lowest(whole)
    return tuple(whole if sum(whole) <= MOST_PARTS else _lowest(_rounded(whole)))


def rounding(weights: Mapping[str, float]) -> str:
    """Return which share `whole_weights` changes most, or "" if none changes by more than 1 %."""
    whole = whole_weights(list(weights.values()))
    before, after = (np.array(each) / sum(each) for each in (list(weights.values()), whole))
    changes = np.where(before > 0, np.abs(after / np.maximum(before, 1e-300) - 1), 0)
    most = int(changes.argmax())
    if changes[most] <= _ROUNDING:
        return ""
    name = list(weights)[most]
    return (
        f"the weight of {name} is rounded: its share is {after[most]:.2g} and not "
        f"{before[most]:.2g}. Use whole numbers with a sum of at most {MOST_PARTS}"
    )


def _lowest(weights: Sequence[int]) -> list[int]:
    divisor = math.gcd(*weights)
    return [one // divisor for one in weights]


def _rounded(weights: Sequence[int]) -> list[int]:
    """Return weights with the sum MOST_PARTS, by the method of the largest remainders."""
    total = sum(weights)
    parts = [max(int(one > 0), one * MOST_PARTS // total) for one in weights]
    while (missing := MOST_PARTS - sum(parts)) != 0:
        step = 1 if missing > 0 else -1
        # The part that is furthest below, or above, its share. The first of equal ones.
        errors = [
            (one * MOST_PARTS / total - part) * step
            for one, part in zip(weights, parts, strict=True)
        ]
        able = [at for at, part in enumerate(parts) if weights[at] and part + step > 0]
        parts[max(able, key=lambda at: (errors[at], -at))] += step
    return parts


@functools.lru_cache(maxsize=16)
def pattern(weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return the source of each row of one period.

    Row n of a source, from 0, is due in rows [floor(n * D / w), ceil((n + 1) * D / w)). Of the
    sources whose next row is due, the one with the earliest end comes first. Tasks of one unit on
    one processor with a total load of 1 always meet such ends.

    Law: in the first j rows, each source has j * w / D rows, less or more by less than one.
    """
    period = sum(weights)
    taken = [0] * len(weights)
    due: list[tuple[int, int]] = []  # (end, source)
    later = [(0, source) for source, weight in enumerate(weights) if weight]  # (start, source)
    found: list[int] = []
    for row in range(period):
        while later and later[0][0] <= row:
            _, source = heapq.heappop(later)
            heapq.heappush(due, (-(-(taken[source] + 1) * period // weights[source]), source))
        _, source = heapq.heappop(due)
        found.append(source)
        taken[source] += 1
        heapq.heappush(later, (taken[source] * period // weights[source], source))
    return tuple(found)


@functools.lru_cache(maxsize=16)
def _prefixes(weights: tuple[int, ...]) -> Counts:
    """Return the rows of each source in the first j rows: shape (D, sources)."""
    sources = np.array(pattern(weights))
    rows = (sources[:, None] == np.arange(len(weights))).cumsum(0)
    return np.vstack([np.zeros((1, len(weights)), np.int64), rows[:-1]])


def taken(weights: tuple[int, ...], rows: Counts) -> Counts:
    """Return the rows of each source in the first `rows` rows of a sequence.

    `rows` has any shape; the result has one more dimension, for the sources.
    """
    rounds, rest = np.divmod(rows, sum(weights))
    found: Counts = rounds[..., None] * np.array(weights) + _prefixes(weights)[rest]
    return found


class Mixer:
    """The rows that the steps of an epoch take of each list of splits.

    Args:
        job: a mixture, complete.
        log: weights by step, which increases. The first are of step 0, or of an earlier step than
            any that is asked for.
    """

    def __init__(self, job: types_pb2.Job, log: Sequence[types_pb2.Weights]) -> None:
        self._seed, self._partitions, self._batch = job.seed, job.partitions, job.global_batch_size
        self.log = list(log)
        self._rows: tuple[int, Counts] | None = None

    def takes(self, step: int) -> Counts:
        """Return the rows that a step takes of each list. Their sum is the global batch.

        Law: in every prefix of steps since the weights changed, each source has its share within
        one row. A partition gives the same number of rows to every step.
        """
        entry = self.log[bisect_right(self.log, step, key=lambda one: one.step) - 1]
        parts = self._parts(entry, np.array(step))
        result: Counts = np.roll(parts, self._turn(step), axis=0).T.reshape(-1)
        return result

    def rows_at(self, step: int, base_step: int, base_rows: Counts) -> Counts:
        """Return the rows of each list before a step, from those before an earlier one.

        Calls with the same base and increasing steps cost as much as the steps between them.
        """
        at, rows = self._rows or (base_step, base_rows)
        if at > step:
            at, rows = base_step, base_rows
        rows = rows + self.between(at, step)
        self._rows = step, rows
        return rows

    def between(self, first: int, stop: int) -> Counts:
        """Return the rows that the steps [first, stop) take of each list."""
        parts = self._partitions
        found = np.zeros((parts, len(self.log[0].weights)), np.int64)
        while first < stop:
            at = bisect_right(self.log, first, key=lambda one: one.step)
            end = min(stop, first + _MOST_STEPS, *(one.step for one in self.log[at : at + 1]))
            of_parts = self._parts(self.log[at - 1], np.arange(first, end))
            turns = np.array([self._turn(one) for one in range(first, end)])
            places = (np.arange(parts) - turns[:, None]) % parts
            found += np.take_along_axis(of_parts, places[..., None], axis=1).sum(axis=0)
            first = end
        return found.T.reshape(-1)

    def _parts(self, entry: types_pb2.Weights, steps: Counts) -> Counts:
        """Return the rows of the parts of steps: shape (*steps, P, sources)."""
        first = (steps - entry.step) * self._batch
        each = self._batch // self._partitions * np.arange(self._partitions + 1)
        return np.diff(taken(tuple(entry.weights), first[..., None] + each), axis=-2)

    def _turn(self, step: int) -> int:
        return mix(self._seed, _TURN, step) % self._partitions


def turns(lists: Sequence[int], sources: int, takes: Counts) -> Iterator[tuple[int, int]]:
    """Yield the rows that one consumer takes in a step: (list, rows), by partition and source.

    Args:
        lists: the consumer's lists, ascending.
        sources: number of sources.
        takes: rows of each list, as by `Mixer.takes`.
    """
    each = len(lists) // sources
    for at in range(each):
        for one in lists[at::each]:
            if takes[one]:
                yield one, int(takes[one])


def lists_of(job: types_pb2.Job) -> int:
    """Return the number of lists of splits of a job: one for each partition of each source."""
    return job.partitions * max(1, len(job.sources))


def never_ends(job: types_pb2.Job) -> bool:
    """Return whether the lists of a mixture repeat their splits."""
    return bool(job.sources) and job.exhaustion == types_pb2.REPEAT


class SourceSplit(NamedTuple):
    """A split as a worker runs it.

    Attributes:
        job: the job of its source.
        epoch: epoch of the source.
        split: index in the source.
    """

    job: types_pb2.Job
    epoch: int
    split: int


def source_split(
    total: int, sources: Sequence[types_pb2.Job], epoch: int, number: int
) -> SourceSplit:
    """Return a split of a mixture by its number, of any round.

    Law: the numbers below `total` are each split of each source once.

    Args:
        total: splits of all sources.
        sources: the jobs of the sources.
        epoch: epoch of the mixture.
        number: see `RepeatedSplits`.
    """
    done, split = divmod(number, total)
    for source in sources:
        if split < source.num_splits:
            return SourceSplit(source, epoch + done, split)
        split -= source.num_splits
    raise AssertionError(f"split {number} of {total}")


def deal(job: types_pb2.Job, epoch: int) -> list[Sequence[int]]:
    """Return the splits of each list of a mixture, in order.

    Law: in the first round, the lists contain each split of each source exactly once.
    """
    found: list[Sequence[int]] = []
    before = 0
    for source in job.sources:
        for own in splits.deal(job.seed, epoch, source.num_splits, job.partitions):
            numbers = [before + split for split in own]
            found.append(
                RepeatedSplits(job.seed, epoch, numbers, job.num_splits)
                if never_ends(job)
                else numbers
            )
        before += source.num_splits
    return found


def log_after(
    step: int, log: Sequence[types_pb2.Weights], schedule: Sequence[types_pb2.Weights]
) -> list[types_pb2.Weights]:
    """Return the weights of a log before a step, and those of a schedule from this step on."""
    now = types_pb2.Weights()
    now.CopyFrom(schedule[bisect_right(schedule, step, key=lambda one: one.step) - 1])
    now.step = step
    return [
        *(one for one in log if one.step < step),
        now,
        *(one for one in schedule if one.step > step),
    ]


def log_from(step: int, log: Sequence[types_pb2.Weights]) -> list[types_pb2.Weights]:
    """Return the part of a log that is in force from a step on.

    Without it, positions would grow with each change of the weights.
    """
    return list(log[bisect_right(log, step, key=lambda one: one.step) - 1 :])


def without(
    log: Sequence[types_pb2.Weights], step: int, sources: Collection[int]
) -> list[types_pb2.Weights]:
    """Return a log without some sources from a step on; [] if no other one is left.

    A later change that leaves no source has no effect.
    """
    now, *later = log_from(step, log)
    found = [one for one in log if one.step < step]
    for at, weights in [(step, now.weights), *((one.step, one.weights) for one in later)]:
        left = [0 if source in sources else one for source, one in enumerate(weights)]
        if any(left):
            found.append(types_pb2.Weights(step=at, weights=whole_weights(left)))
        elif at == step:
            return []
    return found


def is_log(log: Sequence[types_pb2.Weights], sources: int, base_step: int) -> bool:
    """Return whether a position's log has weights in force at its base, and is in order."""
    steps = [one.step for one in log]
    return (
        steps == sorted(set(steps))
        and min(steps, default=base_step) <= base_step
        and all(len(one.weights) == sources for one in log)
        and all(0 < sum(one.weights) <= MOST_PARTS for one in log)
    )


def next_step(position: trainer_pb2.Position) -> int:
    """Return the first step of which a position has no rows."""
    return position.step + bool(position.extra_units)


def has_other_weights(position: trainer_pb2.Position, job: types_pb2.Job) -> bool:
    """Return whether the resource has other weights than when a position was saved."""
    return list(position.job_weights) != list(job.weights)


def log_of(position: trainer_pb2.Position, job: types_pb2.Job) -> list[types_pb2.Weights]:
    """Return the weights in force from a position on.

    If the resource has other weights than when it was saved, they are in force from its step on.
    """
    if not position.weights:
        return list(job.weights)
    if not has_other_weights(position, job):
        return list(position.weights)
    return log_after(next_step(position), position.weights, job.weights)


def set_weights(
    position: trainer_pb2.Position, job: types_pb2.Job, weights: Mapping[str, float]
) -> None:
    """Let other weights be in force from the next step of a position on, in place.

    They replace the rest of the schedule.

    Raises:
        ConfigError: the job is no mixture, or these are no weights of its sources.
    """
    names = [one.entry_point.source for one in job.sources]
    if not names:
        raise ConfigError(
            f"set_weights: input {job.name} is no mixture. Name its sources in spec.mixture.weights"
        )
    if not isinstance(weights, Mapping):
        raise ConfigError("set_weights: pass the weight of each source by its name, as a dict")
    if set(weights) != set(names):
        raise ConfigError(
            f"set_weights: the sources are {', '.join(names)}, not {', '.join(map(str, weights))}. "
            "Give a weight to each of them; 0: no rows"
        )
    for name, weight in weights.items():
        if not isinstance(weight, numbers.Real) or not 0 <= weight < math.inf:
            raise ConfigError(f"set_weights: the weight of {name} is {weight}. Use 0 or more")
    if not any(weights.values()):
        raise ConfigError("set_weights: all weights are 0. Set one of them above 0")
    step, log = next_step(position), log_of(position, job)
    now = types_pb2.Weights(step=step, weights=whole_weights([weights[name] for name in names]))
    del position.weights[:]
    position.weights.extend([*(one for one in log if one.step < step), now])
    del position.job_weights[:]
    position.job_weights.extend(job.weights)
