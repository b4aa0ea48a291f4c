"""Events of what limits an input: each once, however often it comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.events import tell
from tests.unit.distributed_input_operator.snapshots import NOW, snapshot


class Events:
    """An API server that has events."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}

    async def create(self, event: dict[str, Any]) -> None:
        name = event["metadata"]["name"]
        if name in self.made:
            raise ApiError(409, "AlreadyExists", f"events {name!r} already exists")
        self.made[name] = event


def limit(reason: str, message: str) -> dict[str, str]:
    """A condition as it is written."""
    return {"type": "ScalingLimited", "status": "True", "reason": reason, "message": message}


def told(*limits: dict[str, str] | None) -> list[dict[str, Any]]:
    """The events of an input whose limits come one after the other."""
    api: Any = Events()
    before: list[dict[str, str]] = []
    for number, one in enumerate(limits):
        found = replace(snapshot(), status=Status.model_validate({"conditions": before}))
        before = [one] if one else []
        status = {"conditions": before, "workers": {"asked": 4}}
        asyncio.run(tell(api, found, status, NOW + 30 * number))
    return list(api.made.values())


def test_a_limit_that_comes_and_goes_is_told_once():
    most = limit("MaxReplicas", "more than 4 workers are wanted")
    assert [one["reason"] for one in told(*[most, None] * 50)] == [
        "MaxReplicas",
        "ScalingUnlimited",
    ]


def test_other_words_are_another_event():
    spent = [limit("BudgetSpent", f"{n} of 9 workers asked for") for n in (3, 2, 2, 3)]
    assert [one["message"][0] for one in told(*spent)] == ["3", "2"]


@pytest.mark.parametrize(
    ("reason", "kind"), [("Idle", "Normal"), ("Paused", "Normal"), ("BudgetSpent", "Warning")]
)
def test_what_the_spec_asks_for_is_no_warning(reason, kind):
    assert [one["type"] for one in told(limit(reason, "so it is"))] == [kind]
