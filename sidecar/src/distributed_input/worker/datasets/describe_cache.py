"""What a dataset turned out to be, found out once for all jobs that read it.

To describe one its function is called and its graph looked at, which is some tenths of a second: of
eight jobs that start together, as much as a hundred rows or more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from distributed_input.api.proto import types_pb2

_KEPT = 16


class Described:
    """Drafts of jobs, completed. Thread-safe.

    Args:
        describe: completes a draft; what it raises is raised, and not kept.
    """

    def __init__(self, describe: Callable[[types_pb2.Job], types_pb2.Job]) -> None:
        self._describe = describe
        self._found: OrderedDict[bytes, types_pb2.Job] = OrderedDict()
        self._lock = threading.Lock()

    def job(self, draft: types_pb2.Job) -> types_pb2.Job:
        """The draft, completed as the first one was that differed in its name alone."""
        nameless = types_pb2.Job()
        nameless.CopyFrom(draft)
        nameless.ClearField("name")
        key = nameless.SerializeToString(deterministic=True)
        job = types_pb2.Job()
        with self._lock:  # whoever comes meanwhile waits for what is found
            if key not in self._found:
                self._found[key] = self._describe(draft)
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)
            job.CopyFrom(self._found[key])
        job.name = draft.name
        return job
