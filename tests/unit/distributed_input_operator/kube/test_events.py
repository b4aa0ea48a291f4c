"""Events about limits: each once, even if the limit comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.events import report, report_failing_rollout, report_invalid
from distributed_input_operator.objects.snapshot import Failure
from tests.unit.distributed_input_operator.snapshots import NOW, ready, snapshot


class Events:
    """An API server that stores Events."""

    def __init__(self) -> None:
        self.created: dict[str, dict[str, Any]] = {}

    async def create(self, event: dict[str, Any]) -> None:
        name = event["metadata"]["name"]
        if name in self.created:
            raise ApiError(409, "AlreadyExists", f"events {name!r} already exists")
        self.created[name] = event


def limit(reason: str, message: str) -> dict[str, str]:
    """Return a condition as it is written."""
    return ready(type="ScalingLimited", reason=reason, message=message)


def events(*limits: dict[str, str] | None) -> list[dict[str, Any]]:
    """Return the Events of an input that gets these limits in turn."""
    api: Any = Events()
    before: list[dict[str, str]] = []
    for number, one in enumerate(limits):
        found = replace(snapshot(), status=Status.model_validate({"conditions": before}))
        before = [one] if one else []
        status = {"conditions": before, "workers": {"requested": 4}}
        asyncio.run(report(api, found, status, (), NOW + 30 * number))
    return list(api.created.values())


def test_a_limit_that_comes_and_goes_is_reported_once():
    most = limit("MaxReplicas", "more than 4 workers are needed")
    assert [one["reason"] for one in events(*[most, None] * 50)] == [
        "MaxReplicas",
        "ScalingUnlimited",
    ]


def test_another_message_is_another_event():
    spent = [limit("BudgetSpent", f"{n} of 9 requested workers") for n in (3, 2, 2, 3)]
    assert [one["message"][0] for one in events(*spent)] == ["3", "2"]


def test_more_replays_that_differ_are_a_warning():
    api: Any = Events()
    found, counts = snapshot(), []
    for mismatches in (0, 1, 1, 3, None, 2):
        live = None if mismatches is None else {"reading": 1, "replayMismatches": mismatches}
        status = {"conditions": [], **({"trainers": live} if live else {})}
        api.created.clear()
        asyncio.run(report(api, found, status, (), NOW))
        counts.append(len(api.created))
        assert all(
            (one["type"], one["reason"]) == ("Warning", "ReplayDiffers")
            and "spec.determinism: Strict" in one["message"]
            for one in api.created.values()
        )
        found = replace(found, status=Status.model_validate(status))
    assert counts == [0, 1, 0, 1, 0, 1]


def test_skipped_records_are_one_event():
    api: Any = Events()
    found = snapshot()
    for count in (None, 1, 3, 3, 1, 9):
        skipped = {"badRecords": {"skipped": count, "last": f"record {count}"}} if count else {}
        status = {"conditions": [], **skipped}
        asyncio.run(report(api, found, status, (), NOW))
        assert len(api.created) == (0 if count is None else 1)
        found = replace(found, status=Status.model_validate(status))
    (one,) = api.created.values()
    assert (one["type"], one["reason"]) == ("Warning", "RecordsSkipped")
    assert one["message"].endswith("rows --skipped digits` lists them. The last one: record 1")
    api.created.clear()
    asyncio.run(report(api, found, status, (), NOW))
    assert not api.created  # No more of them.


@pytest.mark.parametrize(
    ("reason", "kind"), [("Idle", "Normal"), ("Paused", "Normal"), ("BudgetSpent", "Warning")]
)
def test_a_limit_that_the_spec_sets_is_not_a_warning(reason, kind):
    assert [one["type"] for one in events(limit(reason, "so it is"))] == [kind]


def problem(kind: str, reason: str) -> dict[str, str]:
    return ready(type=kind, reason=reason, message=f"because of {reason}")


def reported(before: list[dict[str, str]], after: list[dict[str, str]], *failures: Failure) -> Any:
    """Return type and reason of the Events of a change of the conditions."""
    api: Any = Events()
    found = replace(snapshot(), status=Status.model_validate({"conditions": before}))
    asyncio.run(report(api, found, {"conditions": after}, failures, NOW))
    return [(one["type"], one["reason"]) for one in api.created.values()]


def test_each_new_problem_is_a_warning():
    quota, failing = (
        problem("QuotaExceeded", "QuotaExceeded"),
        problem("PodsFailing", "PodsFailing"),
    )
    applied, unready = problem("Applied", "Refused"), problem("Ready", "Refused")
    assert reported([], [unready, quota]) == [("Warning", "QuotaExceeded")]
    assert reported([quota], [quota, failing]) == [("Warning", "PodsFailing")]
    assert reported([applied], [problem("Applied", "NameTaken")]) == [("Warning", "NameTaken")]
    assert reported([quota, failing], [unready]) == []


def test_a_request_that_is_retried_is_no_event():
    conflict = problem("Applied", "Conflict")
    assert reported([], [conflict], Failure("Conflict", "later", passing=True)) == []
    assert reported([], [conflict], Failure("Conflict", "no")) == [("Warning", "Conflict")]


def test_an_invalid_spec_and_a_failing_rollout_are_warnings():
    api: Any = Events()
    meta = {"name": "digits", "namespace": "team", "uid": "u-1"}
    asyncio.run(report_invalid(api, meta, "spec.x: " + 2000 * "w", NOW))
    asyncio.run(report_failing_rollout(api, snapshot(), "no such flag", NOW))
    invalid, failing = api.created.values()
    assert (invalid["reason"], len(invalid["message"])) == ("InvalidSpec", 1024)
    assert failing["reason"] == "RolloutFailing"
    assert "no such flag" in failing["message"]
    assert invalid["involvedObject"]["uid"] == failing["involvedObject"]["uid"] == "u-1"
