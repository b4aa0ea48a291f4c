"""The number of rows in an element: few if they are slow to produce, many if they are quick.

Each element costs about 100 microseconds of Python, whatever its size. TensorFlow batches the rows
of a quick dataset in C++, up to the size of one message.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from distributed_input.api.proto import types_pb2
from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata.batching import can_batch
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams.element_rows import BLOCK_BYTES

_ELEMENT_SECONDS = 0.02  # target time to produce one element
_QUICK_SECONDS, _QUICK_ELEMENTS = 0.01, 4  # enough to measure the rate of a quick dataset
_MEASURE_SECONDS, _MEASURE_ELEMENTS = 0.1, 32  # the limits for others
_LATE_SECONDS = 0.05  # after which elements are sent while the next one is still produced
_MAX_DATASETS = 1000


class BatchSizer:
    """Chooses batch sizes from the measured rates of datasets. The GIL makes it thread-safe."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}  # rows a second, by dataset id

    def rows(self, job: types_pb2.Job) -> int:
        """Return the number of rows in an element; 0 leaves the elements as they are."""
        row = ElementSpec.from_json(job.row_spec)
        if not job.global_batch_size or not can_batch(row, job.batched):
            return 0
        per_step = max(1, job.global_batch_size // job.partitions)
        row_bytes = max(1, sum(column.row_bytes or 64 for column in row.columns))
        in_time = int(self._rates.get(job.dataset_id, 0.0) * _ELEMENT_SECONDS)
        return max(1, min(max(per_step, in_time), BLOCK_BYTES // row_bytes))

    def has_rate(self, job: types_pb2.Job) -> bool:
        """Return whether the rate of the job's dataset is known."""
        return job.dataset_id in self._rates

    def record_rate(self, job: types_pb2.Job, rate: float) -> None:
        """Record the rate of the job's dataset, in rows a second."""
        self._rates[job.dataset_id] = rate
        while len(self._rates) > _MAX_DATASETS:
            self._rates.pop(next(iter(self._rates)))


def measure_rate(split: SplitIterator, rows: int) -> tuple[SplitIterator, float | None]:
    """Measure the rate of a split on its first elements.

    A quick dataset is measured in a few milliseconds. Another one, for example with rows that wait
    for storage, is measured for a tenth of a second. Its rate then contains the time of the first
    element, because rows that were made together with that element come all at once.

    Args:
        split: the split. Use the returned one afterwards.
        rows: approximate number of rows in an element.

    Returns:
        The split from its first element on, and its rate in rows a second. The rate is None if the
        split is so slow that the elements should not be produced a second time.
    """
    measurement = _Measurement(split.elements)
    return replace(split, elements=measurement.rest()), measurement.rate(rows)


class _Measurement:
    """Takes the first elements of a split, in a thread of its own.

    The elements that are there are used without a wait for the next one, which may never come.
    """

    def __init__(self, elements: Iterator[Any]) -> None:
        self._elements = elements
        self._measured: deque[Any] = deque()
        self._error: Exception | None = None
        self._is_quick = self._is_late = False
        self._taken = 0
        self._has_first = threading.Event()
        self._began = self._first = self._last = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="measure", daemon=True)
        self._thread.start()
        self._has_first.wait()
        left = _MEASURE_SECONDS - (self._last - self._began)
        self._thread.join(max(0.0, left) + _LATE_SECONDS)
        self._is_late = self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self._goes_on():
                self._measured.append(next(self._elements))
                self._taken += 1
                self._last = time.perf_counter()
                self._first = self._first if self._taken > 1 else self._last
                quick = self._last - self._began < _QUICK_SECONDS
                self._is_quick = quick and self._taken == _QUICK_ELEMENTS
                self._has_first.set()
        except StopIteration:
            self._is_quick = self._last - self._began < _QUICK_SECONDS
        except Exception as raised:  # noqa: BLE001 - raised again after the measured elements
            self._error = raised
        finally:
            self._has_first.set()

    def _goes_on(self) -> bool:
        return (
            self._taken < _MEASURE_ELEMENTS
            and self._last - self._began < _MEASURE_SECONDS
            and not (self._is_quick or self._is_late)
        )

    def rate(self, rows: int) -> float | None:
        """Return the rate in rows a second, or None if it is not known."""
        if self._is_late or self._error is not None or self._taken < 2:
            return None
        count, since = self._taken, self._began
        if self._is_quick:
            count, since = self._taken - 1, self._first
        return count * rows / max(self._last - since, 1e-6)

    def rest(self) -> Iterator[Any]:
        """Yield all elements of the split, from the first one."""
        while self._thread.is_alive() or self._measured:
            if not self._measured:
                self._thread.join()  # it waits for the next element
            else:
                yield self._measured.popleft()
        if self._error is not None:
            raise self._error
        yield from self._elements
