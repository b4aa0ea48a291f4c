"""Cache of described jobs: a dataset is described once for jobs that start at the same time.

Describing a dataset calls its function and analyses its graph. This takes some tenths of a second,
which delays the first rows of every job that starts at the same time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2

_MAX_JOBS = 16
_VALID_SECONDS = 5.0  # jobs that start later describe the dataset again: its files may have changed
_MAX_WAIT_SECONDS = 60.0


class DescribeCache:
    """Completed jobs, by their drafts without the name. Thread-safe.

    Args:
        describe: completes a draft for a consumer. Its errors are raised and not cached.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        describe: Callable[[types_pb2.Job, str], types_pb2.Job],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._describe = describe
        self._clock = clock
        self._jobs: OrderedDict[bytes, tuple[float, types_pb2.Job]] = OrderedDict()
        self._lock = threading.Lock()

    def job(self, draft: types_pb2.Job, consumer: str = "") -> types_pb2.Job:
        """Return the completed draft. Drafts that differ only in their name are described once.

        Args:
            draft: the draft of a job.
            consumer: incarnation of the consumer that requests it.

        Raises:
            UnavailableError: a description takes longer than a minute.
        """
        nameless = types_pb2.Job()
        nameless.CopyFrom(draft)
        nameless.ClearField("name")
        key = nameless.SerializeToString(deterministic=True)
        job = types_pb2.Job()
        # Held while describing, so that concurrent callers share the result.
        if not self._lock.acquire(timeout=_MAX_WAIT_SECONDS):
            raise UnavailableError(
                f"the worker has been describing a dataset for {_MAX_WAIT_SECONDS:.0f} s. Check "
                "what the dataset reads, for example a file system that does not respond."
            )
        try:
            described, cached = self._jobs.get(key, (float("-inf"), None))
            if cached is None or self._clock() > described + _VALID_SECONDS:
                cached = self._describe(draft, consumer)
                self._jobs[key] = self._clock(), cached
                self._jobs.move_to_end(key)
                while len(self._jobs) > _MAX_JOBS:
                    self._jobs.popitem(last=False)
            job.CopyFrom(cached)
        finally:
            self._lock.release()
        job.name = draft.name
        return job
