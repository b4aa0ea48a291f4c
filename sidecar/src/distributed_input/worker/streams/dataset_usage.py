"""The jobs that read a dataset in this worker, and the keys of what their streams may share."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from distributed_input.api.proto import types_pb2, worker_pb2

_START_SECONDS = 60.0  # jobs that start together have opened a stream after this time
_LINGER_SECONDS = 10.0  # a job without open streams may open its next one within this time
_IGNORED_FIELDS = (
    *("name", "run", "warnings", "epochs", "remainder", "mode"),
    *("split_bytes", "split_bytes_at_most", "shard_policy"),
)

DatasetKey = tuple[bytes, int]
"""Identifies a dataset: the fields of the job that its rows depend on, and the seed."""
SplitKey = tuple[DatasetKey, int, int]
"""Identifies a split of a dataset: dataset, epoch and split."""


def sharing_key(request: worker_pb2.StreamRequest) -> SplitKey:
    """Return the key of a request. Streams with the same one get the same rows.

    Streams of runs that do not overlap have other keys: files may have changed meanwhile.
    """
    job = types_pb2.Job()
    job.CopyFrom(request.job)
    for name in _IGNORED_FIELDS:
        job.ClearField(name)
    dataset = job.SerializeToString(deterministic=True), request.seed
    return dataset, request.epoch, request.split


@dataclass
class DatasetUsage:
    """The jobs that read one dataset.

    Attributes:
        began: time of the first stream.
        open: number of open streams of each job.
        closed: time at which the last stream of each job closed.
    """

    began: float = field(default_factory=time.monotonic)
    open: Counter[str] = field(default_factory=Counter)
    closed: dict[str, float] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Return whether several jobs read the dataset, or may be about to."""
        if len(self.open.keys() | self.closed.keys()) > 1:
            return True
        return time.monotonic() - self.began < _START_SECONDS

    def enter(self, job: str) -> None:
        """Record that a job opened a stream."""
        self.open[job] += 1

    def leave(self, job: str) -> None:
        """Record that a job closed a stream."""
        self.open[job] -= 1
        self.open += Counter()  # removes zeros
        self.closed[job] = time.monotonic()

    def is_over(self) -> bool:
        """Return whether no job reads the dataset now or read it lately. Removes old jobs."""
        now = time.monotonic()
        self.closed = {
            job: closed for job, closed in self.closed.items() if now - closed <= _LINGER_SECONDS
        }
        return not self.open and not self.closed
