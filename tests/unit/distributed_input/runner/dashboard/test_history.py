"""What the charts of an input show."""

from __future__ import annotations

import pytest

from distributed_input.runner.dashboard import history
from distributed_input.runner.dashboard.history import InputHistory, chart_point
from distributed_input.runner.display.diagnosis import Cause, Diagnosis
from distributed_input.runner.display.stats import StatusSample
from tests.unit.distributed_input.runner.samples import consumer, worker


def sample(seconds: float, waits: float) -> StatusSample:
    """Return the sample of a trainer that reads 100 rows a second, and of a busy worker."""
    rows = int(seconds * 100)
    trainer = consumer(rows=rows, batches=1, wall_seconds=seconds, wait_seconds=seconds * waits)
    busy = worker(parallelism=1, busy_seconds=seconds, permit_seconds=seconds, rows=rows)
    return StatusSample([trainer], [busy])


def test_the_window_is_that_of_the_rates():
    found = InputHistory("train")
    for second in range(30):
        found.add(sample(second, 0.5), second)
    before, after, seconds = found.window()
    assert seconds == history.WINDOW_SECONDS
    assert after.consumers[0].rows - before.consumers[0].rows == 1000


def test_a_point_has_the_stall_by_cause():
    found = InputHistory("train")
    found.add(sample(0, 0.5), 0.0)
    found.add(sample(10, 0.5), 10.0)
    first, last = found.chart(now=12.0)
    assert first == {"seconds_ago": 12.0, "rows_per_second": 0.0, "stalls": {}}
    assert last["seconds_ago"] == 2.0
    assert last["rows_per_second"] == 100.0
    assert last["stalls"] == {"workers": 0.5}


def test_stalls_are_the_mean_over_the_trainers():
    def diagnosis(cause: Cause, waits: float | None) -> Diagnosis:
        return Diagnosis("t", cause, "", "", waits, 10.0)

    found = chart_point(
        [
            diagnosis(Cause.WORKERS, 0.8),
            diagnosis(Cause.STORAGE, 0.4),
            diagnosis(Cause.WORKERS, 0.4),
            diagnosis(Cause.NONE, 0.04),
            diagnosis(Cause.TRAINER, None),
        ]
    )
    assert found["stalls"] == pytest.approx({"workers": 0.3, "storage": 0.1, "other": 0.01})
    assert found["rows_per_second"] == 50.0


def test_old_points_are_dropped(monkeypatch):
    monkeypatch.setattr(history, "KEPT_SECONDS", 20.0)
    found = InputHistory("train")
    for second in range(0, 100, 5):
        found.add(sample(second, 0.5), second)
    assert [one["seconds_ago"] for one in found.chart(95.0)] == [20, 15, 10, 5, 0]
