"""The last error of a worker's datasets, which its heartbeats report."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator

from distributed_input.api.errors import ConfigError, DatasetFnError, as_utf8
from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import MAX_FAILURE_TEXT, dataset_name
from distributed_input.graph.user_code import is_library

KEPT_SECONDS = 300.0
"""How long an error is reported. A trainer that failed and is started again repeats it earlier."""
_LINE = re.compile(r'File "(.+)", line (\d+)')


class DatasetFailures:
    """The last error of a dataset. Thread-safe.

    Args:
        clock: returns a time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: tuple[float, types_pb2.DatasetFailure] | None = None

    @contextlib.contextmanager
    def recorded(self, job: types_pb2.Job) -> Iterator[None]:
        """Record an error of the job's dataset, or of its description, that the code raises."""
        try:
            yield
        except (ConfigError, DatasetFnError) as error:
            failure = types_pb2.DatasetFailure(dataset=dataset_name(job), message=summary(error))
            with self._lock:
                self._last = self._clock(), failure
            raise

    def last(self) -> types_pb2.DatasetFailure | None:
        """Return the last error, or None if there was none within KEPT_SECONDS."""
        with self._lock:
            if self._last is None or self._clock() > self._last[0] + KEPT_SECONDS:
                return None
            return self._last[1]


def summary(error: Exception) -> str:
    """Return the first line of an error, and the last line of the user's code in its traceback.

    The middle of a long line is left out: TensorFlow writes first where a function ran, and at the
    end what it raised.
    """
    text = as_utf8(str(error))
    lines = [one for one in _LINE.findall(text) if not is_library(one[0])]
    place = f" ({lines[-1][0]}:{lines[-1][1]})" if lines else ""
    first = text.partition("\n")[0] + place
    if len(first) <= MAX_FAILURE_TEXT:
        return first
    half = MAX_FAILURE_TEXT // 2 - 1
    return f"{first[:half]}…{first[-half:]}"
