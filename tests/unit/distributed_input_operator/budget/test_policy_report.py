"""The status of the InputPolicy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.policy import UNLIMITED, Budget, PolicyStatus
from distributed_input_operator.budget.ledger import Used
from distributed_input_operator.budget.policy_report import report

NOW = 1_800_000_000.0
USED = [Used(Budget("all", (60, UNLIMITED, UNLIMITED)), 3, 80, (60, 90_000, 96 << 30))]


def written(*args: Any) -> tuple[dict[str, Any], float]:
    """Return the status to write, and the seconds until the next look."""
    status, pause = report(*args)
    assert status is not None
    return status, pause


def test_the_status_is_written_after_changes_but_not_more_often_than_the_pause():
    status, pause = written(PolicyStatus(), 1, "", USED, NOW, 30.0)
    assert (status["summary"], pause) == ("all 60/60", 30.0)
    assert status["budgets"][0] == {
        "name": "all",
        "inputs": 3,
        "workers": 60,
        "wanted": 80,
        "cpu": "90",
        "memory": "96Gi",
    }
    before = PolicyStatus.model_validate(status)
    assert report(before, 1, "", USED, NOW + 500, 30.0) == (None, 300.0)
    changed = [Used(USED[0].budget, 3, 80, (59, 90_000, 96 << 30))]
    assert report(before, 1, "", changed, NOW + 10, 30.0) == (None, 20.0)
    assert written(before, 1, "", changed, NOW + 31, 30.0)[0]["summary"] == "all 59/60"
    assert written(before, 2, "", changed, NOW + 1, 30.0)[0]["observedGeneration"] == 2
    undated = before.model_copy(update={"observed_at": ""})
    assert written(undated, 1, "", changed, NOW + 10, 30.0)[0]["summary"] == "all 59/60"


def test_the_summary_of_a_budget_without_a_limit_has_only_its_workers():
    used = [replace(USED[0], budget=Budget("all", (UNLIMITED, 1000, UNLIMITED)))]
    assert written(PolicyStatus(), 1, "", used, NOW, 30.0)[0]["summary"] == "all 60"


@pytest.mark.parametrize(
    ("memory", "text"), [(2 << 40, "2048Gi"), (300 << 20, "0.29Gi"), (1500 << 30, "1500Gi")]
)
def test_memory_is_written_as_a_quantity(memory, text):
    used = [replace(USED[0], used=(60, 90_000, memory))]
    status, _ = written(PolicyStatus(), 1, "", used, NOW, 30.0)
    assert status["budgets"][0]["memory"] == text
