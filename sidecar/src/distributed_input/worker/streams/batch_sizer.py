"""How many rows come as one element: few where they take long, many where they are quick.

An element costs some 100 microseconds in Python, however small it is: rows of a quick dataset
are put together in C++, to about what one message carries.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from distributed_input.api.proto import types_pb2
from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata.batching import can_batch
from distributed_input.worker.datasets.sources import Source
from distributed_input.worker.streams.stream import BLOCK_BYTES

_FILL_SECONDS = 0.02  # rows that come as one element take about so long
_TRY_SECONDS = 0.01
_TRY_ELEMENTS = 4
_KEPT = 1000


class Pace:
    """Rows a second of the datasets that were seen. Guarded by the GIL."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}

    def rows(self, job: types_pb2.Job) -> int:
        """Rows to make as one element; 0: leave the elements as they are."""
        row = ElementSpec.from_json(job.row_spec)
        if not job.global_batch_size or not can_batch(row, job.batched):
            return 0
        turn = max(1, job.global_batch_size // job.partitions)
        width = max(1, sum(column.row_bytes or 64 for column in row.columns))
        quick = int(self._rates.get(job.dataset_id, 0.0) * _FILL_SECONDS)
        return max(1, min(max(turn, quick), BLOCK_BYTES // width))

    def knows(self, job: types_pb2.Job) -> bool:
        """Whether the dataset's pace has been seen."""
        return job.dataset_id in self._rates

    def learn(self, job: types_pb2.Job, rate: float) -> None:
        """Note the rows a second of the job's dataset."""
        self._rates[job.dataset_id] = rate
        while len(self._rates) > _KEPT:
            self._rates.pop(next(iter(self._rates)))


def tried(source: Source, rows: int) -> tuple[Source, float | None]:
    """Take a few elements, and put them back.

    Args:
        source: whose elements have about `rows` rows.
        rows: of an element.

    Returns:
        The source from its first element on, and its rows a second: None where that took too
        long to make the elements again.
    """
    taken: deque[Any] = deque()
    error: Exception | None = None
    began = first = last = time.perf_counter()
    try:
        while len(taken) < _TRY_ELEMENTS and last - began < _TRY_SECONDS:
            taken.append(next(source.elements))
            last = time.perf_counter()
            first = first if len(taken) > 1 else last
    except StopIteration:
        pass
    except Exception as raised:  # noqa: BLE001 - is raised again where the element is wanted
        error = raised
    quick = error is None and len(taken) > 1 and last - began < _TRY_SECONDS
    rate = (len(taken) - 1) * rows / max(last - first, 1e-6) if quick else None
    return replace(source, elements=_again(taken, error, source.elements)), rate


def _again(taken: deque[Any], error: Exception | None, rest: Iterator[Any]) -> Iterator[Any]:
    while taken:
        yield taken.popleft()
    if error is not None:
        raise error
    yield from rest
