"""Events about limits: each once, even if the limit comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.events import report_limit, report_mismatches
from tests.unit.distributed_input_operator.snapshots import NOW, snapshot


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
    return {"type": "ScalingLimited", "status": "True", "reason": reason, "message": message}


def events(*limits: dict[str, str] | None) -> list[dict[str, Any]]:
    """Return the Events of an input that gets these limits in turn."""
    api: Any = Events()
    before: list[dict[str, str]] = []
    for number, one in enumerate(limits):
        found = replace(snapshot(), status=Status.model_validate({"conditions": before}))
        before = [one] if one else []
        status = {"conditions": before, "workers": {"asked": 4}}
        asyncio.run(report_limit(api, found, status, NOW + 30 * number))
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
        live = None if mismatches is None else {"consumers": 1, "replayMismatches": mismatches}
        status = {"live": live} if live else {}
        api.created.clear()
        asyncio.run(report_mismatches(api, found, status, NOW))
        counts.append(len(api.created))
        assert all(
            (one["type"], one["reason"]) == ("Warning", "ReplayDiffers")
            and "spec.determinism: strict" in one["message"]
            for one in api.created.values()
        )
        found = replace(found, status=Status.model_validate(status))
    assert counts == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("reason", "kind"), [("Idle", "Normal"), ("Paused", "Normal"), ("BudgetSpent", "Warning")]
)
def test_a_limit_that_the_spec_sets_is_not_a_warning(reason, kind):
    assert [one["type"] for one in events(limit(reason, "so it is"))] == [kind]
