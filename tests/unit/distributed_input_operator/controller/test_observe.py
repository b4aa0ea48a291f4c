"""Snapshots of inputs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distributed_input.api.resource.policy import PolicySpec
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.observe import InvalidSpec, observe, parse_input
from distributed_input_operator.controller.tokens import InputTokens
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import NAMESPACE, SECRET
from distributed_input_operator.kube.store import Store
from tests.unit.distributed_input_operator.snapshots import KEY_SECRET, SETTINGS, resource

KEY = ("team", "digits")


class Server:
    """An API server with the input's Secret, and maybe its ConfigMap."""

    def __init__(self, config_map: dict[str, Any] | None = None, refused: bool = False) -> None:
        self._config_map, self._refused = config_map, refused

    async def get(self, kind: object, *_: object) -> dict[str, Any] | None:
        return KEY_SECRET if kind is SECRET else self._config_map

    async def create(self, _: object) -> dict[str, Any]:
        if self._refused:
            raise ApiError(403, "Forbidden", "exceeded quota: secrets")
        return KEY_SECRET


def stored(**spec: Any) -> dict[str, Any]:
    return resource(**spec).model_dump(mode="json", by_alias=True, exclude_none=True)


def context_with(obj: dict[str, Any] | None, server: Any) -> ControllerContext:
    store = Store()
    if obj is not None:
        store.put(obj)
    return ControllerContext(
        server, store, InputTokens(server, "operators"), DispatcherClient(), SETTINGS
    )


def code(config_map: dict[str, Any] | None) -> Any:
    dataset = {"entryPoint": "a:b", "source": {"configMap": "code"}}
    context = context_with(stored(dataset=dataset), Server(config_map))
    return asyncio.run(observe(context, KEY))


def test_a_deleted_input_has_no_snapshot():
    assert asyncio.run(observe(context_with(None, Server()), KEY)) is None
    leaving = stored()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert asyncio.run(observe(context_with(leaving, Server()), KEY)) is None


def test_the_hash_of_the_code_changes_with_the_config_map():
    first, second = code({"data": {"a.py": "1"}}), code({"data": {"a.py": "2"}})
    assert first.code != second.code
    assert first.missing == ()


def test_a_missing_config_map_is_a_failure():
    (failure,) = code(None).missing
    assert failure.reason == "CodeMissing"


def test_the_autoscaling_state_of_the_context_is_in_the_snapshot():
    context = context_with(stored(), Server())
    context.set_autoscaling_state(KEY, "u-1", AutoscalingState(7))
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    assert found.scaled == AutoscalingState(7)


def test_an_invalid_spec_is_reported_with_its_field():
    wrong = stored()
    wrong["spec"]["workers"] = {"replicas": -1}
    with pytest.raises(InvalidSpec, match=r"workers\.replicas"):
        parse_input(wrong)


def test_fields_of_a_newer_definition_are_ignored():
    newer = stored()
    newer["spec"]["invented"] = {"later": True}
    assert parse_input(newer).metadata.name == "digits"


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        ({"entryPoint": "os:system"}, "spec.dataset.entryPoint: workers may not import module os"),
        (
            {"entryPoint": "digits:make", "source": {"configMap": "code"}},
            "spec.dataset.source.configMap: the InputPolicy limits the modules",
        ),
        ({"entryPoint": "digits:make"}, ""),
        ({}, ""),
    ],
)
def test_code_that_the_policy_does_not_allow_is_a_final_failure(dataset, text):
    context = context_with(stored(dataset=dataset), Server({"data": {}}))
    context.ledger.set_policy(PolicySpec.model_validate({"modules": ["digits"]}))
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    assert [(one.reason, one.final) for one in found.missing] == [("CodeRefused", True)] * bool(
        text
    )
    assert all(one.message.startswith(text) for one in found.missing)


def test_certificates_are_renewed_although_the_secret_is_refused():
    """A quota refuses a Secret before the API server sees that it exists."""
    context = context_with(stored(encryption="all"), Server(refused=True))
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    assert set(found.certificates) == {"dispatcher.crt", "worker.crt", "sidecar.crt", "viewer.crt"}
    assert [one.reason for one in found.missing] == ["QuotaExceeded"]
    assert found.renew_seconds < 24 * 3600


def test_workers_get_the_modules_and_the_rollout_is_paced():
    context = context_with(stored(dataset={"entryPoint": "digits:make"}), Server())
    before = asyncio.run(observe(context, KEY))
    context.ledger.set_policy(PolicySpec.model_validate({"modules": ["digits"]}))
    after = asyncio.run(observe(context, KEY))
    assert before
    assert after
    assert after.settings.modules == ("digits",)
    assert after.settings.revision != before.settings.revision, "another template of the operator"


class Namespaces(Server):
    """The same, with the labels of the namespace."""

    async def get(self, kind: object, *_: object) -> dict[str, Any] | None:
        if kind is NAMESPACE:
            return {"metadata": {"name": "team", "labels": {"of": "us"}}}
        return await super().get(kind)


def test_the_namespace_is_read_if_a_budget_selects_by_its_labels():
    context = context_with(stored(), Namespaces())
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    assert found.namespace_labels is None
    budget = {"name": "a", "namespaceSelector": {"of": "us"}}
    context.ledger.set_policy(PolicySpec.model_validate({"budgets": [budget]}))
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    assert found.namespace_labels == {"of": "us"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("other", "no class other for this namespace: use one of the classes high, or ask"),
        ("theirs", "no class theirs for this namespace: use one of the classes high, or ask"),
        ("high", ""),
        (None, ""),
    ],
)
def test_a_priority_class_that_the_input_may_not_use_is_a_final_failure(name, text):
    context = context_with(stored(trainers={"priorityClass": name}), Server())
    classes = [{"name": "high", "value": 1}, {"name": "theirs", "value": 2, "namespaces": ["b"]}]
    context.ledger.set_policy(PolicySpec.model_validate({"priorityClasses": classes}))
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    assert [(one.reason, one.final, text in one.message) for one in found.missing] == [
        ("PriorityClassRefused", True, True)
    ] * bool(text)
