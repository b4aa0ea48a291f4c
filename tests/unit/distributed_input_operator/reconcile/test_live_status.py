"""How often the status is written while trainers read: every 30 s, but lasting changes at once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api import timestamps
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.reconcile.live_status import round_rate
from distributed_input_operator.reconcile.status import input_status
from tests.unit.distributed_input_operator.snapshots import NOW, after, plan, snapshot

RECONCILE_SECONDS = 5


def written_while(before: Snapshot, needs: list[float]) -> list[tuple[float, dict[str, Any]]]:
    """Return each written status and its time. `needs` has the workers needed at each time."""
    written, now = [], NOW
    for need in needs:
        now += RECONCILE_SECONDS
        measured = Measurement(consumers=2, demand=100 * need, busy_rate=100, rows_per_second=need)
        found = replace(before, measured=measured)
        planned = plan(found, now)
        if (status := input_status(found, planned, [], now)) is not None:
            written.append((now, status))
            before = replace(before, status=Status.model_validate(status))
        assert planned.decision
        before = replace(after(before, planned), scaled=planned.decision.state)
    return written


def scaled(**autoscaling: int) -> Snapshot:
    """Return an input that runs."""
    new = snapshot(workers={"autoscaling": autoscaling})
    return after(new, plan(new, NOW))


@pytest.mark.parametrize("low", [1.2, 3.2])
@pytest.mark.parametrize("most", [4, 9])
def test_a_need_that_keeps_changing_is_written_every_30_s(low, most):
    before = scaled(minReplicas=1, maxReplicas=most, stabilizationWindowSeconds=60)
    needs = [9.0] * 20 + [4.4, low] * 200
    written = written_while(before, needs)
    settled = [now for now, status in written if now > NOW + 30 * RECONCILE_SECONDS]
    gaps = [b - a for a, b in itertools.pairwise(settled)]
    assert len(settled) > 5
    assert min(gaps) >= 30


def test_replays_that_differ_and_the_read_amplification_are_in_the_status():
    before = scaled(minReplicas=1, maxReplicas=9)
    measured = Measurement(consumers=2, mismatches=3, amplification=8)
    status = input_status(replace(before, measured=measured), plan(before, NOW), [], NOW)
    assert status is not None
    assert status["live"]["replayMismatches"] == 3
    assert status["live"]["readAmplification"] == 8


def test_a_new_number_of_workers_is_written_at_once():
    before = scaled(minReplicas=1, maxReplicas=9)
    written = written_while(before, [2.0, 2.0, 6.0])
    assert [now - NOW for now, _ in written] == [5, 15]
    assert written[-1][1]["workers"]["desired"] == 6


def test_autoscaling_keeps_its_state_between_two_writes():
    """Workers stay for a whole window after they were last needed, even if that was not written."""
    window = 60
    before = scaled(minReplicas=1, maxReplicas=9, stabilizationWindowSeconds=window)
    needs = [5.0] * 4 + [2.0] * 8 + [4.9] + [2.0] * 40
    written = written_while(before, needs)
    last_needed = NOW + 13 * RECONCILE_SECONDS
    fewer = [now for now, status in written if status["workers"]["desired"] < 5]
    assert fewer
    assert fewer[0] >= last_needed + window


def test_the_status_has_the_time_of_its_write():
    before = scaled(minReplicas=1, maxReplicas=9)
    for now, status in written_while(before, [2.0] * 3 + [2.5, 2.4, 2.3] * 20):
        assert timestamps.to_seconds(status["live"]["observedAt"]) == now


def live(rate: float, seconds: float) -> Any:
    """Return the rates written `seconds` after others. None: they are not written."""
    reading = replace(snapshot(), measured=Measurement(consumers=1, rows_per_second=100))
    first = Status.model_validate(input_status(reading, plan(reading), [], NOW))
    later = replace(reading, status=first, measured=Measurement(consumers=1, rows_per_second=rate))
    status = input_status(later, plan(later), [], NOW + seconds)
    return status and status["live"]


def test_rates_alone_are_written_every_30_s_and_only_if_two_digits_change():
    assert live(200, 29) is None
    assert live(200, 30)["rowsPerSecond"] == 200
    assert live(100.4, 3000) is None


@pytest.mark.parametrize(
    ("rate", "rounded"), [(0.2, 0), (0.7, 1), (7.4, 7), (74.4, 74), (1234, 1200), (98765, 99000)]
)
def test_rates_are_rounded_to_two_digits(rate, rounded):
    assert round_rate(rate) == rounded


def test_a_split_without_progress_is_written_at_once():
    before = scaled(minReplicas=1, maxReplicas=1)
    first = replace(before, measured=Measurement(consumers=1))
    status = input_status(first, plan(first, NOW), [], NOW)
    assert status is not None
    text = "split 3 of dataset data:rows, worker h:1"
    stalled = replace(
        first,
        status=Status.model_validate(status),
        measured=Measurement(consumers=1, stalled=text),
    )
    written = input_status(stalled, plan(stalled, NOW + 1), [], NOW + 1)
    assert written is not None
    assert written["live"]["stalled"] == text
