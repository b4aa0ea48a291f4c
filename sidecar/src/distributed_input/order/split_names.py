"""The names of splits: those by which `dataset_fn` knows them. Pure.

In an epoch of a mixture, the splits of all sources and of all their rounds have one number each,
see `mixture.RepeatedSplits`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.proto import types_pb2


class SplitNames(NamedTuple):
    """Splits, as `dataset_fn` knows them: arrays of one value for each.

    Attributes:
        source: `context.source`; "" without a mixture.
        epoch: `context.epoch`.
        split: `context.input_pipeline_id`.
    """

    source: NDArray[np.str_]
    epoch: NDArray[np.int64]
    split: NDArray[np.int64]


def split_names(job: types_pb2.Job, epoch: int, numbers: NDArray[np.int64]) -> SplitNames:
    """Return the names of splits of an epoch.

    Args:
        job: of a mixture, it has the names and the numbers of splits of the sources.
        epoch: the epoch of the job.
        numbers: those of the splits. -1: no split, which has the names "", -1 and -1.
    """
    if not job.sources:
        return SplitNames(np.full(numbers.shape, ""), np.where(numbers < 0, -1, epoch), numbers)
    starts = np.cumsum([0, *(one.num_splits for one in job.sources)])
    rounds, split = np.divmod(numbers, starts[-1])
    source = np.searchsorted(starts, split, side="right") - 1
    names = np.array([one.entry_point.source for one in job.sources])[source]
    none = numbers < 0
    return SplitNames(
        np.where(none, "", names),
        np.where(none, -1, epoch + rounds),
        np.where(none, -1, split - starts[source]),
    )
