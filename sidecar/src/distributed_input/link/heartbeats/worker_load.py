"""The load of a worker, which its heartbeats report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.api.proto import types_pb2


@dataclass(frozen=True)
class WorkerLoad:
    """The load of a worker at one time.

    Attributes:
        draining: whether the worker refuses new streams.
        open_streams: number of open streams.
        rows: rows sent since the start.
        busy_seconds: time spent producing rows since the start.
        parallelism: number of elements that it may compute at the same time now.
        permit_seconds: `parallelism`, summed over the time since the start.
        capacity: number of splits that it can compute at the same time.
        buffer_bytes: memory for the buffers of open splits; 0: unknown.
        cpu_seconds: CPU time of this process since its start.
        stalled: splits whose next rows take long, the longest first.
        failure: the last error of a dataset, or None.
    """

    draining: bool
    open_streams: int
    rows: int
    busy_seconds: float
    parallelism: int
    permit_seconds: float
    capacity: int = 1
    buffer_bytes: int = 0
    cpu_seconds: float = 0.0
    stalled: Sequence[types_pb2.StalledSplit] = ()
    failure: types_pb2.DatasetFailure | None = None
