"""How many splits each partition opens behind the one that is read.

A partition delivers its splits one after the other. Splits that are opened ahead let more workers
compute at the same time. Each takes memory in the sidecar and in a worker. So the automatic number
is small, and increases only while rows are waited for and the workers could compute more splits.

It also increases only after a split has ended. The rows of further splits are needed after the end
of those that are open. If that takes an hour, they take memory and CPU time from the rows that are
needed now. For the same reason, each increase is a trial: without more rows per second, it is taken
back. Workers report the CPUs that they may use, but another process may use the same CPUs.

The first split ahead waits too, for at most ten seconds, if the splits that are read can use all
workers. To open it and to fill its queues would take the CPU time that the first rows need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from distributed_input.api.proto import types_pb2
from distributed_input.api.sidecar_memory import heads_suffice, useful_read_ahead
from distributed_input.api.stalls import FULL_QUEUES

_STARVED_SHARE = 0.1
_START_SECONDS = 1.0  # until splits that are opened have their first rows
_MEASURE_SECONDS, _LONG_MEASURE_SECONDS = 2.0, 10.0
_MEASURE_ELEMENTS = 8  # of each split: rows arrive in whole elements, at any time
_PAUSE_SECONDS = 30.0  # after an increase that did not help
LARGE_SPLITS = (
    f"{FULL_QUEUES}, so workers compute only the split of each partition that is read now. Compute "
    "rows in parallel within a split (num_parallel_calls), or raise spec.partitions"
)
"""What limits the useful workers while `ReadAhead.only_heads_help`."""
_FIRST_SECONDS = 10.0  # at most, in which the splits that are read have the workers for themselves
_SURE_TIMES = 10  # measurements of the same kind before `only_heads_help` changes
_GAIN_SHARE, _MOST_GROWTH = 0.4, 0.5  # rows that an increase must bring, see `_helped`


def automatic_read_ahead(
    splits: int, *, most: int, capacity: int, partitions: int, increases: bool
) -> int:
    """Return the number of splits that each partition opens ahead from now on.

    Law: the result is at most `most`, and at least 1 if `most` is. It increases only if requested,
    and then up to two open splits for each split that the workers can compute at the same time.

    Args:
        splits: the number until now.
        most: maximum, which memory and dataset set.
        capacity: number of splits that the workers can compute at the same time.
        partitions: number of partitions that all consumers read at the same time.
        increases: whether the number may increase.
    """
    wanted = 2 * max(1, splits) if increases else splits
    return min(most, max(1, min(wanted, useful_read_ahead(capacity, partitions))))


@dataclass(frozen=True)
class ReadingTime:
    """A short time in which steps read rows.

    Attributes:
        seconds: its duration.
        waited: seconds in which the steps waited for rows that a further split could provide.
        rows: rows that were received from all open splits.
        waited_for_head: seconds in which they waited for the split that is read, while splits
            behind it had full queues.
    """

    seconds: float
    waited: float
    rows: int
    waited_for_head: float = 0.0

    @property
    def is_starved(self) -> bool:
        """Whether the steps waited for rows."""
        return self.waited > _STARVED_SHARE * self.seconds

    @property
    def is_starved_by_head(self) -> bool:
        """Whether the steps waited for rows that no other split could provide."""
        return self.waited_for_head > _STARVED_SHARE * self.seconds


@dataclass
class Measurement:
    """Measures the rows per second while the steps wait for rows.

    Attributes:
        wait: seconds until the measurement begins.
    """

    wait: float = 0.0
    _rows: int = 0
    _seconds: float = 0.0

    def add(self, last: ReadingTime, least_rows: int) -> float | None:
        """Return the rows per second, or None before enough time was added.

        That is more if there are fewer than `least_rows`, because rows arrive in large elements.

        Time in which the steps did not wait is ignored: full queues slow the workers down then.
        """
        if self.wait > 0:
            self.wait -= last.seconds
        elif last.is_starved:
            self._rows += last.rows
            self._seconds += last.seconds
        enough = self._seconds >= (
            _MEASURE_SECONDS if self._rows >= least_rows else _LONG_MEASURE_SECONDS
        )
        return self._rows / self._seconds if enough else None


@dataclass
class ReadAhead:
    """The number of splits that each partition opens ahead, and what it may become.

    Attributes:
        most: the maximum.
        automatic: whether the number follows the workers. Otherwise it is the maximum.
        partitions: number of partitions that all consumers read at the same time.
        room: returns for how many open splits the workers have memory; None: unknown.
        least: the minimum, also if the splits may not fit.
        step_rows: rows that a step takes from this consumer's partitions. A worker may send as
            many rows of each split together.
        splits: the number now.
        has_end: whether a split of the job has ended.
        only_heads_help: whether workers can help only with the splits that are read now: the
            queues of splits behind them are full, and steps wait.
    """

    most: int
    automatic: bool = False
    partitions: int = 1
    room: Callable[[], int | None] = lambda: None
    least: int = 0
    step_rows: int = 0
    splits: int = field(init=False)
    has_end: bool = False
    only_heads_help: bool = False
    _seconds: float = 0.0  # since the first step
    _starved_times: int = 0
    _before: tuple[int, float] | None = None  # the number and the rate before the last increase
    _measured: Measurement = field(default_factory=Measurement)

    def __post_init__(self) -> None:
        self.splits = 0 if self.automatic else self.most

    def _most(self) -> int:
        return fitting_splits(self.most, self.partitions, self.room(), self.least)

    def start(self, capacity: int) -> None:
        """Set the number after the first step of an epoch. `capacity`: see `adapt`."""
        if self.automatic and not self._heads_suffice(capacity):
            self.splits = self._automatic(capacity, increases=False)

    def adapt(self, capacity: int, last: ReadingTime) -> None:
        """Set the number for the workers of now.

        Args:
            capacity: number of splits that the workers can compute at the same time.
            last: the time since the last call.
        """
        self._seconds += last.seconds
        change = 1 if last.is_starved_by_head else -1
        self._starved_times = max(0, min(_SURE_TIMES, self._starved_times + change))
        if self._starved_times in (0, _SURE_TIMES):
            self.only_heads_help = bool(self._starved_times)
        if not self.automatic or self._heads_suffice(capacity):
            return
        least = _MEASURE_ELEMENTS * self.step_rows * (1 + self.splits)
        rate = self._measured.add(last, least) if self.has_end else None
        if rate is not None:
            self._measured = Measurement()
            if self._before is not None and not _helped(*self._before, self.splits, rate):
                self.splits, rate = self._before[0], None
                self._measured = Measurement(_PAUSE_SECONDS)
            self._before = None
        splits = self._automatic(capacity, increases=rate is not None)
        if rate is not None and splits > self.splits:
            self._before = self.splits, rate
            self._measured = Measurement(_START_SECONDS)
        self.splits = splits

    def _automatic(self, capacity: int, *, increases: bool) -> int:
        return automatic_read_ahead(
            self.splits,
            most=self._most(),
            capacity=capacity,
            partitions=self.partitions,
            increases=increases,
        )

    def _heads_suffice(self, capacity: int) -> bool:
        """Return whether the first rows come sooner without a split ahead."""
        if self.splits or self.has_end or self._seconds >= _FIRST_SECONDS:
            return False
        return heads_suffice(capacity, self.partitions)


def fitting_splits(most: int, partitions: int, room: int | None, least: int = 0) -> int:
    """Return the number of splits that each partition may open ahead, at most `most`.

    Law: all open splits fit, unless `least` for each partition do not fit.

    Args:
        most: maximum.
        partitions: number of partitions that all consumers read at the same time.
        room: for how many open splits the workers have memory; None: unknown.
        least: minimum, unless `most` is less.
    """
    return most if room is None else min(most, max(least, room // partitions - 1))


def _helped(splits_before: int, rate_before: float, splits: int, rate: float) -> bool:
    """Return whether the rate has grown by a share of the growth of the open splits."""
    growth = (splits - splits_before) / (1 + splits_before)
    return rate >= rate_before * (1 + _GAIN_SHARE * min(growth, _MOST_GROWTH))


@dataclass(frozen=True)
class UsefulWorkers:
    """How many workers can compute rows of one consumer at the same time.

    Attributes:
        number: the maximum number of its open splits.
        limit: what sets the maximum, and the field to change, as text for people.
    """

    number: int = 0
    limit: str = ""


def turns_of(job: types_pb2.Job) -> int:
    """Return the largest number of splits of one partition that are read in one epoch."""
    if job.sources:
        return max(-(-one.num_splits // job.partitions) for one in job.sources)
    return 1 if job.infinite else -(-job.num_splits // job.partitions)


def useful_workers(
    job: types_pb2.Job, partitions: int, most: int, configured: int | None
) -> UsefulWorkers:
    """Return how many workers can compute rows of a consumer at the same time.

    Args:
        job: the job, complete.
        partitions: number of partitions that the consumer reads.
        most: number of splits that each of them opens ahead at most.
        configured: spec.sidecar.readAhead. The memory limit may allow fewer.
    """
    splits = min(job.num_splits, partitions * turns_of(job))
    streams = partitions * (1 + most)
    if streams < splits and most != configured:
        return UsefulWorkers(
            streams,
            "more open splits need more memory in the sidecar. Raise "
            "spec.sidecar.resources.limits.memory, or use more trainers",
        )
    if streams < splits:
        return UsefulWorkers(streams, f"spec.sidecar.readAhead is {configured}. Remove it")
    if job.infinite and not job.sources:
        limit = f"an endless dataset has one split for each of {job.partitions} partitions"
        return UsefulWorkers(splits, f"{limit}. Raise spec.partitions")
    number = "one split" if job.num_splits == 1 else f"{job.num_splits} splits"
    return UsefulWorkers(splits, f"the dataset has {number}. Raise spec.numSplits")
