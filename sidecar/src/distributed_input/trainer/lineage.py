"""Which rows the batches of an epoch have, as the sidecar reports it on request."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order.split_names import split_names
from distributed_input.trainer.position_log import HISTORY_STEPS


class Lineage(NamedTuple):
    """Which row of the dataset each row of a batch is: arrays of one value for each row.

    Attributes:
        source: its source, one of `spec.mixture.weights`; "" without a mixture.
        epoch: its epoch, from 0; in a mixture, that of its source.
        split: its split: `context.input_pipeline_id` of the call of `dataset_fn` that made it.
        row: its index among the rows that this call's dataset gives, from 0. If no batch size is
            known, an element is one row.

    All arrays but `source` are int64. Rows that fill up a batch have -1 in them.
    """

    source: NDArray[np.str_]
    epoch: NDArray[np.int64]
    split: NDArray[np.int64]
    row: NDArray[np.int64]


class LineageLog:
    """The rows of the most recent units of one epoch."""

    def __init__(self) -> None:
        # (rows of the unit, its ranges): not the message, which would keep its whole packet.
        self._units: deque[tuple[int, NDArray[np.int64]]] = deque(maxlen=HISTORY_STEPS)
        self._count = 0

    def append(self, unit: trainer_pb2.Unit) -> None:
        """Save the rows of the next unit."""
        ranges = [(one.split, one.first_row, one.rows) for one in unit.lineage]
        self._units.append((unit.rows, np.array(ranges, np.int64).reshape(-1, 3)))
        self._count += 1

    def at(self, job: types_pb2.Job, epoch: int, first: int, stop: int) -> Lineage:
        """Return the rows of the units [first, stop) of epoch `epoch` of a job, in order.

        Raises:
            PositionError: there is no such unit, or it is older than the log.
        """
        oldest = self._count - len(self._units)
        if not 0 <= first < stop <= self._count:
            raise PositionError("no batch was read since the iterator began")
        if first < oldest:
            raise PositionError(
                f"the loop is more than {HISTORY_STEPS} batches of a replica behind those that "
                "were read ahead: read fewer ahead"
            )
        parts = []
        for rows, ranges in list(self._units)[first - oldest : stop - oldest]:
            part = np.full((2, rows), -1, np.int64)
            at = 0
            for split, first_row, count in ranges.tolist():
                part[0, at : at + count] = split
                part[1, at : at + count] = np.arange(first_row, first_row + count)
                at += count
            parts.append(part)
        numbers, row = np.concatenate(parts, axis=1)
        return Lineage(*split_names(job, epoch, numbers), row)
