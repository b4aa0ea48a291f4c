"""The number of rows in an element: few if they are slow to produce, many if they are quick.

Each element costs about 100 microseconds of Python, whatever its size. TensorFlow batches the rows
of a quick dataset in C++, up to the size of one message.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from distributed_input.api.proto import types_pb2
from distributed_input.graph.batching import can_batch, can_join
from distributed_input.rows.blocks import BLOCK_BYTES
from distributed_input.rows.elements import ElementSpec
from distributed_input.worker.datasets.split_iterator import SplitIterator

_ELEMENT_SECONDS = 0.02  # target time to produce one element
_PARALLEL_SECONDS = 0.2  # maximum time to produce an element of rows that are made in parallel
_MOST_PARALLEL_ROWS = 256
_UNMEASURED_STEPS = 8  # steps of rows in an element while the size of a row is not known
_MEASURE_SECONDS = 0.01
_MEASURE_ELEMENTS = 4
_ENDLESS_ATTEMPTS = 3  # another process may take the CPU during one
_START_SECONDS = 1.0  # may be spent twice: a shuffle buffer is filled again
_LONG_SECONDS = 0.05  # an element that takes longer is slow
_QUICK_ROWS = 1000.0  # a second
_MAX_DATASETS = 1000


@dataclass
class _DatasetRate:
    """What is known about a dataset: rows a second, rows made in parallel, mean bytes of a row.

    `estimate` are the rows a second of a few elements, also if they are too slow for a rate.
    """

    rate: float | None = None
    estimate: float | None = None
    calls: int = 0
    row_bytes: float | None = None


class BatchSizer:
    """Chooses batch sizes from the measured rates of datasets. The GIL makes it thread-safe."""

    def __init__(self) -> None:
        self._measured: dict[str, _DatasetRate] = {}  # by dataset id

    def _of(self, job: types_pb2.Job) -> _DatasetRate:
        measured = self._measured.setdefault(job.dataset_id, _DatasetRate())
        while len(self._measured) > _MAX_DATASETS:
            self._measured.pop(next(iter(self._measured)))
        return measured

    def rows(self, job: types_pb2.Job, block_bytes: int = BLOCK_BYTES) -> int:
        """Return the number of rows in an element; 0 leaves the elements as they are.

        Args:
            job: the complete job.
            block_bytes: size of the largest element, unless a row is larger.
        """
        row = ElementSpec.from_json(job.row_spec)
        if not job.global_batch_size:
            return 0
        if not can_batch(row, job.batched) and not (job.batched and can_join(row)):
            return 0
        per_step = max(1, job.global_batch_size // job.partitions)
        known_bytes = sum(column.row_bytes or 64 for column in row.columns)
        measured = self._of(job)
        row_bytes = max(1, known_bytes, int(measured.row_bytes or 0))
        rate, in_parallel = measured.rate, measured.calls
        if rate is not None:
            in_parallel = min(in_parallel, int(rate * _PARALLEL_SECONDS))
        rows = max(per_step, int((rate or 0.0) * _ELEMENT_SECONDS), in_parallel)
        if measured.row_bytes is None and not row.is_static:
            rows = min(rows, _UNMEASURED_STEPS * per_step)
        return max(1, min(rows, block_bytes // row_bytes))

    def has_rate(self, job: types_pb2.Job) -> bool:
        """Return whether the rate of the job's dataset is known."""
        return self._of(job).rate is not None

    def is_quick(self, job: types_pb2.Job) -> bool:
        """Return whether a row is known to take less than a millisecond."""
        measured = self._of(job)
        return (measured.rate or measured.estimate or 0.0) > _QUICK_ROWS

    def record_estimate(self, job: types_pb2.Job, estimate: float) -> None:
        """Record the rate of a few elements, which may be less exact than others."""
        self._of(job).estimate = estimate

    def record_rate(self, job: types_pb2.Job, rate: float) -> None:
        """Record the rate of the job's dataset, in rows a second."""
        self._of(job).rate = rate

    def record_row_bytes(self, job: types_pb2.Job, mean: float) -> None:
        """Record the mean size of a row of the job's dataset."""
        self._of(job).row_bytes = mean

    def record_calls(self, job: types_pb2.Job, calls: int) -> None:
        """Record how many rows the job's dataset makes in parallel.

        They are ready at about the same time, so an element may have all of them.
        """
        self._of(job).calls = min(calls, _MOST_PARALLEL_ROWS)


class MeasuredSplit(NamedTuple):
    """A split from its first element on, and its rate in rows a second.

    The rate is None if the split is so slow that the elements should not be produced a second time.
    The estimate has the rate of a few elements also then; 0: unknown.
    """

    split: SplitIterator
    rate: float | None
    estimate: float


def measure_rate(split: SplitIterator, rows: int, endless: bool = False) -> MeasuredSplit:
    """Measure the rate of a split on its first elements.

    Args:
        split: the split. Use the returned one afterwards.
        rows: approximate number of rows in an element.
        endless: whether the split never ends. Its elements keep their size, so its rate is worth
            more than one attempt, and up to _START_SECONDS to the first element do not count.
    """
    measured: deque[Any] = deque()
    error: Exception | None = None
    rate, estimate = None, 0.0
    try:
        began = time.perf_counter()
        measured.append(next(split.elements))
        first = time.perf_counter() - began
        estimate = rows / max(first, 1e-6)
        before = first if first > _START_SECONDS or not endless else 0.0
        for _ in range(_ENDLESS_ATTEMPTS if endless else 1):
            count, seconds = _take_quick(split.elements, measured, _MEASURE_SECONDS - before)
            if count:
                estimate = count * rows / max(seconds, 1e-6)
            if count and before + seconds < _MEASURE_SECONDS:
                rate = estimate
                break
            if seconds > _LONG_SECONDS:
                break
    except StopIteration:
        pass
    except Exception as raised:  # noqa: BLE001 - raised again after the measured elements
        error = raised
    rest = replace(split, elements=_from_first(measured, error, split.elements))
    return MeasuredSplit(rest, rate, estimate)


def _take_quick(elements: Iterator[Any], taken: deque[Any], limit: float) -> tuple[int, float]:
    """Take a few elements within a limit in seconds. Return their number and the time."""
    began = last = time.perf_counter()
    count = 0
    while count < _MEASURE_ELEMENTS - 1 and last - began < limit:
        try:
            taken.append(next(elements))
        except StopIteration:
            break
        last = time.perf_counter()
        count += 1
    return count, last - began


def _from_first(
    measured: deque[Any], error: Exception | None, rest: Iterator[Any]
) -> Iterator[Any]:
    while measured:
        yield measured.popleft()
    if error is not None:
        raise error
    yield from rest
