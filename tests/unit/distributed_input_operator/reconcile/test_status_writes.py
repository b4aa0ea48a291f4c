"""How often a status is written while trainers read: once in 30 s, but what lasts at once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api import timestamps
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measured
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.reconcile.plan import plan, report
from tests.unit.distributed_input_operator.snapshots import NOW, after, snapshot

LOOK_SECONDS = 5


def looked_at(before: Snapshot, needs: list[float]) -> list[tuple[float, dict[str, Any]]]:
    """When the status was written, and how, while an input needs so many workers at each look."""
    written, now = [], NOW
    for need in needs:
        now += LOOK_SECONDS
        measured = Measured(consumers=2, demand=100 * need, busy_rate=100, rows_per_second=need)
        seen = replace(before, measured=measured)
        made = plan(seen, now)
        if (status := report(seen, made, [], now)) is not None:
            written.append((now, status))
            before = replace(before, status=Status.model_validate(status))
        assert made.decision
        before = replace(after(before, made), scaled=made.decision.state)
    return written


def scaled(**autoscaling: int) -> Snapshot:
    """An input that runs."""
    young = snapshot(workers={"autoscaling": autoscaling})
    return after(young, plan(young, NOW))


@pytest.mark.parametrize("low", [1.2, 3.2])
@pytest.mark.parametrize("most", [4, 9])
def test_a_need_that_goes_up_and_down_all_the_time_is_written_once_in_30_s(low, most):
    before = scaled(minReplicas=1, maxReplicas=most, stabilizationWindowSeconds=60)
    needs = [9.0] * 20 + [4.4, low] * 200
    written = looked_at(before, needs)
    settled = [now for now, status in written if now > NOW + 30 * LOOK_SECONDS]
    gaps = [b - a for a, b in itertools.pairwise(settled)]
    assert len(settled) > 5
    assert min(gaps) >= 30


def test_a_new_number_of_workers_is_written_at_once():
    before = scaled(minReplicas=1, maxReplicas=9)
    written = looked_at(before, [2.0, 2.0, 6.0])
    assert [now - NOW for now, _ in written] == [5, 15]
    assert written[-1][1]["workers"]["desired"] == 6


def test_what_autoscaling_remembers_between_two_writes_counts():
    """Workers stay for a whole window after they were last needed, written or not."""
    window = 60
    before = scaled(minReplicas=1, maxReplicas=9, stabilizationWindowSeconds=window)
    needs = [5.0] * 4 + [2.0] * 8 + [4.9] + [2.0] * 40
    written = looked_at(before, needs)
    last_needed = NOW + 13 * LOOK_SECONDS
    fewer = [now for now, status in written if status["workers"]["desired"] < 5]
    assert fewer
    assert fewer[0] >= last_needed + window


def test_the_time_of_a_write_is_told():
    before = scaled(minReplicas=1, maxReplicas=9)
    for now, status in looked_at(before, [2.0] * 3 + [2.5, 2.4, 2.3] * 20):
        assert timestamps.to_seconds(status["live"]["observedAt"]) == now
