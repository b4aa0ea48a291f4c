"""Cache of described jobs: a dataset is described once for all jobs that read it.

Describing a dataset calls its function and analyses its graph. This takes some tenths of a second,
which delays the first rows of every job that starts at the same time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from distributed_input.api.proto import types_pb2

_MAX_JOBS = 16


class DescribeCache:
    """Completed jobs, by their drafts without the name. Thread-safe.

    Args:
        describe: completes a draft. Its errors are raised and not cached.
    """

    def __init__(self, describe: Callable[[types_pb2.Job], types_pb2.Job]) -> None:
        self._describe = describe
        self._jobs: OrderedDict[bytes, types_pb2.Job] = OrderedDict()
        self._lock = threading.Lock()

    def job(self, draft: types_pb2.Job) -> types_pb2.Job:
        """Return the completed draft. Drafts that differ only in their name are described once."""
        nameless = types_pb2.Job()
        nameless.CopyFrom(draft)
        nameless.ClearField("name")
        key = nameless.SerializeToString(deterministic=True)
        job = types_pb2.Job()
        with self._lock:  # held while describing, so that concurrent callers share the result
            if key not in self._jobs:
                self._jobs[key] = self._describe(draft)
                while len(self._jobs) > _MAX_JOBS:
                    self._jobs.popitem(last=False)
            job.CopyFrom(self._jobs[key])
        job.name = draft.name
        return job
