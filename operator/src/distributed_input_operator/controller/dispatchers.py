"""Measure inputs by the status of their dispatchers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from distributed_input_operator.autoscaling.rates import Measurement, RateWindow
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller.channels import (
    CERTIFICATE_REFUSED,
    TOKEN_REFUSED,
    Channels,
    DispatcherAccess,
    refused,
)
from distributed_input_operator.controller.status_answer import (
    MAX_BYTES,
    UnusableAnswer,
    parse_answer,
)
from distributed_input_operator.objects.snapshot import Failure

_MIN_SAMPLE_SECONDS = 4.0
"""Minimum time between two samples. Sidecars and workers report only every few seconds."""
_ENTRY_SECONDS = 0.004
"""Time between two samples for each worker and consumer in an answer, about 150 times the CPU time
that it costs. Large answers must not occupy the operator."""
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 30.0, 300.0
"""Time without requests to a dispatcher that did not respond. It doubles with each failure, because
a reconciliation waits for the response."""
MAX_KEPT = 400_000
"""Maximum number of workers and consumers in the samples of all inputs, about 120 MB."""
_MAX_CALLS = 16
"""Maximum number of simultaneous requests to the dispatchers of one namespace. Slow dispatchers
of one user must not occupy all reconciliations."""
_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    # Each channel would record its last events, in 3 KiB.
    ("grpc.max_channel_trace_event_memory_per_node", 0),
    ("grpc.max_receive_message_length", MAX_BYTES),
    # Only uncompressed answers: a small compressed one can have any size.
    ("grpc.compression_enabled_algorithms_bitset", 1),
]

_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""No answer: the dispatcher may just start."""

_UNUSABLE = "StatusUnusable"
_TOO_MANY = "StatusTooLarge"
"""Reasons of the condition Unmeasured, besides those of `channels`."""


@dataclass
class _DispatcherState:
    """What is known of one input's dispatcher."""

    uid: str
    window: RateWindow = field(default_factory=RateWindow)
    address: str = ""
    access: Callable[[], DispatcherAccess] = DispatcherAccess
    asked: bool = False
    """Whether a request is on its way."""
    sample_at: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    """Consecutive requests to which this address gave no usable answer."""
    problem: Failure | None = None
    """Why its last answer was not used. None if it did not respond."""


class DispatcherClient:
    """Requests the status of dispatchers, and keeps recent measurements.

    The measurements can be lost: they describe rates, not progress.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, max_kept: int = MAX_KEPT
    ) -> None:
        self._clock = clock
        self._max_kept = max_kept
        self._known: dict[InputKey, _DispatcherState] = {}
        self._kept = 0
        """Number of workers and consumers in all samples."""
        self._channels = Channels(_OPTIONS)
        self._calls: Counter[str] = Counter()
        """Number of running requests by namespace."""

    async def measure(
        self, key: InputKey, uid: str, address: str, access: Callable[[], DispatcherAccess]
    ) -> Measurement | None:
        """Return the measurement of an input. None: its dispatcher gives no usable answer.

        A failure affects only this input: see `problem`.
        """
        known, now = self._known.get(key), self._clock()
        if known is None or known.uid != uid:  # Another input of the same name.
            self.forget(key)
            known = self._known[key] = _DispatcherState(uid)
        if known.address != address:  # Another pod.
            known.address, known.retry_at, known.failures, known.problem = address, now, 0, None
            known.sample_at = now
        known.access = access
        return await self._measure(key, known)

    async def look(self, key: InputKey) -> Measurement | None:
        """Measure an input again, where and as the last call of `measure` did."""
        known = self._known.get(key)
        return await self._measure(key, known) if known else None

    async def _measure(self, key: InputKey, known: _DispatcherState) -> Measurement | None:
        now = self._clock()
        if now < known.sample_at:
            return known.window.measurement
        if now < known.retry_at:
            return None
        if known.asked or self._calls[key[0]] >= _MAX_CALLS:
            return known.window.measurement
        address = known.address
        try:
            answer = await self._request(key, known)
            sample = parse_answer(answer, now)
        except (grpc.aio.AioRpcError, UnusableAnswer) as error:
            if known.address != address:  # The failure of a previous pod.
                return known.window.measurement
            if self._known.get(key) is known:
                self._fail(known, now, error)
            return None
        if self._known.get(key) is not known:  # It was forgotten meanwhile.
            return None
        if known.address != address:  # The answer of a previous pod.
            return known.window.measurement
        known.failures, known.problem = 0, None
        known.sample_at = now + max(_MIN_SAMPLE_SECONDS, sample.size * _ENTRY_SECONDS)
        self._set_window(known, known.window.add(sample))
        self._limit_memory()
        return known.window.measurement

    def problem(self, key: InputKey) -> Failure | None:
        """Return why the input cannot be measured. None: it can, or its dispatcher is silent."""
        known = self._known.get(key)
        return known.problem if known else None

    def close(self, key: InputKey) -> None:
        """Keep the connection to an input's dispatcher no longer. Its measurements stay."""
        self._channels.close(key)

    def forget(self, key: InputKey) -> None:
        """Drop the measurements of a deleted input."""
        known = self._known.pop(key, None)
        self.close(key)
        self._kept -= known.window.size if known else 0

    def __len__(self) -> int:
        return len(self._known)

    async def _request(self, key: InputKey, known: _DispatcherState) -> bytes:
        namespace, last = key[0], known.window.measurement
        read = last is not None and last.consumers > 0
        self._calls[namespace] += 1
        known.asked = True
        try:
            return await self._channels.status(key, known.address, known.access, keep=read)
        finally:
            known.asked = False
            self._calls[namespace] -= 1
            if not self._calls[namespace]:
                del self._calls[namespace]

    def _fail(
        self, known: _DispatcherState, now: float, error: grpc.aio.AioRpcError | UnusableAnswer
    ) -> None:
        known.problem = _problem(error)
        if known.problem and known.problem.reason in (TOKEN_REFUSED, CERTIFICATE_REFUSED):
            known.failures = 0  # It responds at once, and will accept new credentials.
        known.retry_at = now + min(_MIN_BACKOFF_SECONDS * 2**known.failures, _MAX_BACKOFF_SECONDS)
        known.failures = min(known.failures + 1, 10)
        self._set_window(known, RateWindow())

    def _set_window(self, known: _DispatcherState, window: RateWindow) -> None:
        self._kept += window.size - known.window.size
        known.window = window

    def _limit_memory(self) -> None:
        """Drop samples while all inputs have too many: the largest of the largest namespace."""
        while self._kept > self._max_kept:
            sizes: Counter[str] = Counter()
            for (namespace, _), known in self._known.items():
                sizes[namespace] += known.window.size
            ((worst, _),) = sizes.most_common(1)
            largest = max(
                (known for key, known in self._known.items() if key[0] == worst),
                key=lambda known: known.window.size,
            )
            self._set_window(largest, RateWindow())
            largest.problem = Failure(
                _TOO_MANY,
                "the dispatchers of this namespace report too many workers and consumers: the "
                "operator measures this input again when they report fewer",
            )


def _problem(error: grpc.aio.AioRpcError | UnusableAnswer) -> Failure | None:
    """Return what the user can do. None: the dispatcher did not respond."""
    if isinstance(error, UnusableAnswer):
        what = str(error)
    elif error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        what = f"it has more than {MAX_BYTES >> 20} MiB"
    elif failure := refused(error):
        return failure
    elif error.code() in _SILENT:
        return None
    else:  # For example INTERNAL, if the answer is compressed.
        what = f"it is the error {error.code().name}"
    return Failure(
        _UNUSABLE,
        f"the operator does not use the dispatcher's status: {what}. The number of workers stays "
        "as it is. Check spec.sidecar.image, or the number of workers and trainers",
    )
