"""The last samples of one input, and what they say over time: pure, with `now` as an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed_input.runner.display.diagnosis import Cause, Diagnosis, diagnose
from distributed_input.runner.display.stats import StatusSample

WINDOW_SECONDS = 10.0
"""Window of rates and diagnoses: processes report once a second."""
KEPT_SECONDS = 600.0
"""Time that the charts show."""


@dataclass
class InputHistory:
    """The samples of one input. `add` adds one."""

    name: str
    address: str = ""
    """Address of its dispatcher; empty: its name identifies it."""
    place: str = ""
    """Process and folder of its run, if it is on this machine."""
    problems: Sequence[str] = ()
    """What the operator reports."""
    error: str = ""
    """Why there is no current sample."""
    samples: deque[tuple[float, StatusSample]] = field(default_factory=deque)
    points: deque[tuple[float, dict[str, Any]]] = field(default_factory=deque)
    """The time and the `chart_point` of each sample."""

    def add(self, sample: StatusSample, now: float) -> None:
        """Add a sample, and drop those that are too old."""
        self.error = ""
        self.samples.append((now, sample))
        while len(self.samples) > 2 and self.samples[1][0] <= now - WINDOW_SECONDS:
            self.samples.popleft()
        self.points.append((now, chart_point(self.diagnoses())))
        while self.points[0][0] < now - KEPT_SECONDS:
            self.points.popleft()

    def window(self) -> tuple[StatusSample, StatusSample, float]:
        """Return the first and the last sample of the window, and the seconds between them."""
        (then, before), (now, after) = self.samples[0], self.samples[-1]
        return before, after, max(now - then, 1e-3)

    def diagnoses(self) -> list[Diagnosis]:
        """Return a diagnosis of each trainer."""
        before, after, _ = self.window()
        return diagnose(before, after)

    def chart(self, now: float) -> list[dict[str, Any]]:
        """Return the points as JSON values, the oldest first."""
        return [{"seconds_ago": round(now - at, 1), **point} for at, point in self.points]


def chart_point(diagnoses: Sequence[Diagnosis]) -> dict[str, Any]:
    """Return what the charts show for the diagnoses of all trainers, as JSON values.

    These are the sum of their rows per second, and `stalls`: the share of the trainers' time that
    they waited, 0 to 1, by cause; their mean.
    """
    stalls: dict[str, float] = {}
    known = [one for one in diagnoses if one.waits is not None]
    for one in known:
        # Below the least share that counts as waiting, a trainer has no cause.
        cause = "other" if one.cause is Cause.NONE else one.cause.value
        stalls[cause] = stalls.get(cause, 0.0) + (one.waits or 0.0) / len(known)
    rate = sum(one.rows_per_second or 0.0 for one in diagnoses)
    return {"rows_per_second": rate, "stalls": stalls}
