"""When to look at which dispatcher, and which looks lead to a reconciliation."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from distributed_input_operator.autoscaling.decision import recommended_workers, useful_workers
from distributed_input_operator.autoscaling.rates import Measurement, reconcile_interval
from distributed_input_operator.budget.claim import InputKey, namespace_of
from distributed_input_operator.controller.input_metrics import set_measurement
from distributed_input_operator.controller.work_queue import WorkQueue
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.objects.worker import parallelism
from distributed_input_operator.reconcile.status import WRITE_SECONDS

_log = logging.getLogger(__name__)

_CONCURRENT = 128
"""Concurrent looks, of which one namespace has at most half. Most of their time is waiting, up to
2 s for a silent dispatcher."""
MAX_WRITES_PER_SECOND = 10.0
"""Writes of values that change all the time, over all inputs."""

_SHOWN = ("consumers", "stalled", "mismatches", "failing", "skips")
"""Fields of Seen that the status shows at once."""


@dataclass(frozen=True)
class Seen:
    """What the last reconciliation of an input used of its measurement."""

    parallelism: int
    autoscaling: bool
    consumers: int = 0
    needed: int | None = None
    useful: int = 0
    stalled: str = ""
    mismatches: int = 0
    failing: str = ""
    skips: bool = False
    """Whether splits left out records."""

    def with_measurement(self, measured: Measurement) -> Seen:
        """Return what a reconciliation would use of this measurement."""
        needed = recommended_workers(measured, self.parallelism)
        return Seen(
            self.parallelism,
            self.autoscaling,
            measured.consumers,
            needed if self.autoscaling else None,
            useful_workers(measured) if self.autoscaling else 0,
            measured.stalled,
            measured.mismatches,
            measured.failing,
            measured.skipped.count > 0,
        )


def is_news(before: Seen, after: Seen) -> bool:
    """Return whether a reconciliation would do something now that must not wait.

    Fewer workers can wait: the number decreases only after minutes.
    """
    if any(getattr(before, name) != getattr(after, name) for name in _SHOWN):
        return True
    if after.needed is None or before.needed is None:
        return after.needed is not before.needed
    # A limit that is higher, or not known any more.
    more_useful = after.useful > before.useful or not after.useful
    return after.needed > before.needed or (before.useful > 0 and more_useful)


class Looks:
    """The inputs that trainers read. It belongs to one event loop."""

    def __init__(
        self,
        measure: Callable[[InputKey], Awaitable[Measurement | None]],
        close: Callable[[InputKey], None],
    ) -> None:
        """Create without inputs.

        Args:
            measure: called to look at an input.
            close: called with each input that is looked at no longer. Its connection is not needed.
        """
        self._measure, self._close = measure, close
        self._seen: dict[InputKey, Seen] = {}
        self._expected: set[InputKey] = set()
        """Inputs that trainers read under the previous leader, and that were not recorded yet."""
        self._queue: WorkQueue[InputKey] = WorkQueue(namespace_of, _CONCURRENT)

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def write_seconds(self) -> float:
        """Minimum seconds between two writes of one input's values that change all the time."""
        count = len(self._seen) + len(self._expected)
        return max(WRITE_SECONDS, count / MAX_WRITES_PER_SECOND)

    def expect(self, key: InputKey) -> None:
        """Count an input in `write_seconds` before its first reconciliation by this leader."""
        if key not in self._seen:
            self._expected.add(key)

    def record(self, key: InputKey, snapshot: Snapshot) -> None:
        """Record what a reconciliation used. The next look follows if trainers read the input."""
        measured, spec = snapshot.measured, snapshot.resource.spec
        if measured is None or not measured.consumers or spec.suspend:
            self.forget(key)
            return
        scaled = spec.workers.autoscaling is not None
        self._expected.discard(key)
        self._seen[key] = Seen(parallelism(snapshot.resource), scaled).with_measurement(measured)
        self._schedule(key, measured)

    def forget(self, key: InputKey) -> None:
        """Look at an input no longer."""
        self._close(key)
        self._expected.discard(key)
        if self._seen.pop(key, None):
            self._queue.forget(key)

    async def run(self, reconcile: Callable[[InputKey], None]) -> None:
        """Look until cancelled. `reconcile` is called with each input that needs it."""

        async def look(key: InputKey) -> None:
            try:
                if await self._look(key):
                    reconcile(key)
            except Exception:  # noqa: BLE001 - one input must not stop the looks at others
                # The reconciliation repeats it, and reports it.
                _log.exception("%s/%s: cannot look at the dispatcher", *key)
                reconcile(key)

        await self._queue.run(look)

    async def _look(self, key: InputKey) -> bool:
        """Measure an input. Return whether to reconcile it now."""
        if key not in self._seen:
            return False
        measured = await self._measure(key)
        before = self._seen.get(key)
        if measured is None or before is None:
            return before is not None
        set_measurement(key, measured, before.parallelism)
        self._schedule(key, measured)
        after = before.with_measurement(measured)
        if not is_news(before, after):
            return False
        # The reconciliation may not record what it used, for example if the spec is invalid.
        self._seen[key] = after
        return True

    def _schedule(self, key: InputKey, measured: Measurement) -> None:
        self._queue.add_after(key, reconcile_interval(measured) * random.uniform(0.9, 1.1))
