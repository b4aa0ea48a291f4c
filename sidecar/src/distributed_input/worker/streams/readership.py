"""Which jobs read which dataset in this worker: what may be shared, and whether to keep it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from distributed_input.api.proto import types_pb2, worker_pb2

_YOUNG_SECONDS = 60.0  # jobs that start together are there after so long
_LINGER_SECONDS = 10.0  # a job that has no stream open may be about to open its next
_NOT_OF_ROWS = ("name", "warnings", "epochs", "strict", "remainder", "order", "mode")

DatasetKey = tuple[bytes, int]
"""What is the same for all splits of a dataset that are made alike: the job's own, and the seed."""
SplitKey = tuple[DatasetKey, int, int]
"""A dataset's split in an epoch."""


def keys(request: worker_pb2.StreamRequest) -> tuple[DatasetKey, SplitKey]:
    """What a stream wants: streams of one split key get the same rows."""
    job = types_pb2.Job()
    job.CopyFrom(request.job)
    for name in _NOT_OF_ROWS:
        job.ClearField(name)
    dataset = job.SerializeToString(deterministic=True), request.seed
    return dataset, (dataset, request.epoch, request.split)


@dataclass
class Readership:
    """The jobs that read one dataset: streams open by job, and when the last one closed."""

    began: float = field(default_factory=time.monotonic)
    open: Counter[str] = field(default_factory=Counter)
    closed: dict[str, float] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Several jobs read it, or may be about to."""
        if len(self.open.keys() | self.closed.keys()) > 1:
            return True
        return time.monotonic() - self.began < _YOUNG_SECONDS

    def enter(self, job: str) -> None:
        """A stream of a job begins."""
        self.open[job] += 1

    def leave(self, job: str) -> None:
        """A stream of a job is over."""
        self.open[job] -= 1
        self.open += Counter()  # drops zeros
        self.closed[job] = time.monotonic()

    def is_over(self) -> bool:
        """Nobody reads it, or has lately. Forgets jobs that have gone."""
        now = time.monotonic()
        self.closed = {j: at for j, at in self.closed.items() if now - at <= _LINGER_SECONDS}
        return not self.open and not self.closed
