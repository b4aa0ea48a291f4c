"""The status of the InputPolicy: what each budget has granted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributed_input.api.resource.policy import UNLIMITED, Budget
from distributed_input.api.resource.status import PolicyStatus
from distributed_input_operator.budget.claim import BudgetUsage
from distributed_input_operator.reconcile.policy_status import policy_status

NOW = 1_800_000_000.0
USAGE = [BudgetUsage(Budget("all", (60, UNLIMITED, UNLIMITED)), 3, 80, (60, 90_000, 96 << 30))]


def written(*args):
    """Return the status, which must be worth a write, and the next interval."""
    status, interval = policy_status(*args)
    assert status is not None
    return status, interval


def test_the_status_is_written_on_a_change_but_at_most_once_per_interval():
    status, interval = written(PolicyStatus(), 1, "", USAGE, NOW, 30.0)
    assert (status["summary"], interval) == ("all 60/60", 30.0)
    assert status["budgets"][0] == {
        "name": "all",
        "inputs": 3,
        "workers": 60,
        "requested": 80,
        "resources": {"cpu": "90", "memory": "96Gi"},
    }
    before = PolicyStatus.model_validate(status)
    assert policy_status(before, 1, "", USAGE, NOW + 500, 30.0) == (None, 300.0)
    moved = [BudgetUsage(USAGE[0].budget, 3, 80, (59, 90_000, 96 << 30))]
    assert policy_status(before, 1, "", moved, NOW + 10, 30.0) == (None, 20.0)
    assert written(before, 1, "", moved, NOW + 31, 30.0)[0]["summary"] == "all 59/60"
    assert written(before, 2, "", moved, NOW + 1, 30.0)[0]["observedGeneration"] == 2
    undated = before.model_copy(update={"observed_at": None})
    assert written(undated, 1, "", moved, NOW + 10, 30.0)[0]["summary"] == "all 59/60"


def test_the_summary_of_a_budget_without_a_worker_limit_has_the_number_of_workers():
    used = [replace(USAGE[0], budget=Budget("all", (UNLIMITED, 1000, UNLIMITED)))]
    assert written(PolicyStatus(), 1, "", used, NOW, 30.0)[0]["summary"] == "all 60"


@pytest.mark.parametrize(
    ("memory", "text"), [(2 << 40, "2048Gi"), (300 << 20, "0.29Gi"), (1500 << 30, "1500Gi")]
)
def test_memory_is_written_as_a_quantity(memory, text):
    used = [replace(USAGE[0], used=(60, 90_000, memory))]
    assert (
        written(PolicyStatus(), 1, "", used, NOW, 30.0)[0]["budgets"][0]["resources"]["memory"]
        == text
    )


def test_the_status_has_the_resources_that_the_policy_names():
    used = [replace(USAGE[0], used=(60, 90_000, 0, 2, 8))]
    names = ("example.com/fpga", "nvidia.com/gpu")
    status, _ = policy_status(PolicyStatus(), 1, "", used, NOW, 30.0, names)
    assert status is not None
    found = status["budgets"][0]["resources"]
    assert (found["example.com/fpga"], found["nvidia.com/gpu"]) == ("2", "8")


def test_a_policy_that_cannot_be_used_is_not_ready():
    """Its conditions have the fields and reasons that those of an input have."""
    status, _ = written(PolicyStatus(), 4, "spec.budgets: wrong", USAGE, NOW, 30.0)
    found = {
        one["type"]: (one["status"], one["observedGeneration"]) for one in status["conditions"]
    }
    assert found == {"Ready": ("False", 4), "Reconciling": ("False", 4), "Stalled": ("True", 4)}
    assert {one["reason"] for one in status["conditions"]} == {"InvalidSpec"}
    assert {one["message"] for one in status["conditions"]} == {"spec.budgets: wrong"}
    before = PolicyStatus.model_validate(status)
    assert policy_status(before, 4, "spec.budgets: wrong", USAGE, NOW + 99, 30.0)[0] is None
    repaired, _ = written(before, 5, "", USAGE, NOW + 1, 30.0)
    assert [one["status"] for one in repaired["conditions"]] == ["True", "False", "False"]
    assert {one["reason"] for one in repaired["conditions"]} == {"InEffect"}
