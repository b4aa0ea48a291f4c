"""Snapshots of inputs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.policy import PolicySpec
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.observe import (
    InvalidSpec,
    observe,
    observe_invalid,
    parse_input,
)
from distributed_input_operator.kube.issuer_secret import IssuerSecret
from distributed_input_operator.kube.kinds import INPUT, NAMESPACE, SECRET
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from testing.issuer import PlatformRoot
from tests.unit.distributed_input_operator.contexts import context_of
from tests.unit.distributed_input_operator.objects.builders import from_config_map
from tests.unit.distributed_input_operator.snapshots import KEY_SECRET, SETTINGS, ready, resource

KEY = ("team", "digits")


class Server:
    """An API server with the input's Secret, and maybe its ConfigMap."""

    def __init__(self, config_map: dict[str, Any] | None = None) -> None:
        self._config_map = config_map

    async def get(self, kind: object, *_: object) -> dict[str, Any] | None:
        return KEY_SECRET if kind is SECRET else self._config_map

    async def create(self, _: object) -> dict[str, Any]:
        return KEY_SECRET


class ReadOnly(Server):
    """The same, without any write."""

    async def create(self, _: object) -> dict[str, Any]:
        raise AssertionError("observing must write nothing")


def stored(**spec: Any) -> dict[str, Any]:
    return resource(**spec).model_dump(mode="json", by_alias=True, exclude_none=True)


def context_with(obj: dict[str, Any] | None, server: Any) -> ControllerContext:
    store = Store()
    if obj is not None:
        store.put(obj)
    return context_of(server, store)


def code(config_map: dict[str, Any] | None) -> Any:
    dataset = from_config_map("code")
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


class Existing(Server):
    """The same, with the input, which is read before its Secret is created again."""

    async def get(self, kind: object, *_: object) -> dict[str, Any] | None:
        return stored() if kind is INPUT else await super().get(kind)


def test_the_spec_sets_the_encryption():
    for value, encrypted in (("All", True), ("Control", True), ("None", False)):
        found = asyncio.run(observe(context_with(stored(encryption=value), Existing()), KEY))
        assert found is not None
        assert bool(found.certificates) is encrypted


def test_fields_of_a_newer_definition_are_ignored():
    newer = stored()
    newer["spec"]["invented"] = {"later": True}
    assert parse_input(newer).metadata.name == "digits"


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (
            {"type": "EntryPoint", "entryPoint": {"function": "os:system"}},
            "spec.dataset.entryPoint.function: workers may not import module os",
        ),
        (
            from_config_map("code"),
            "spec.dataset.entryPoint.source: the InputPolicy limits the modules",
        ),
        ({"type": "EntryPoint", "entryPoint": {"function": "digits:make"}}, ""),
        ({"type": "Trainer"}, ""),
    ],
)
def test_code_that_the_policy_does_not_allow_is_a_final_failure(dataset, text):
    context = context_with(stored(dataset=dataset), Server({"data": {}}))
    context.ledger.set_policy(PolicySpec.model_validate({"modules": ["digits"]}))
    found = asyncio.run(observe(context, KEY))
    assert found is not None
    refused = [("CodeRefused", True)] if text else []
    assert [(one.reason, one.final) for one in found.missing] == refused
    assert all(one.message.startswith(text) for one in found.missing)


@pytest.mark.parametrize("encryption", ["All", "None"])
@pytest.mark.parametrize("valid", [True, False])
def test_what_is_written_is_in_the_snapshot_and_observing_writes_nothing(encryption, valid):
    context = context_with(stored(encryption=encryption), ReadOnly())
    context.store.put(dispatcher_objects(resource(), SETTINGS)[0])
    found: Any = asyncio.run((observe if valid else observe_invalid)(context, KEY))
    if encryption == "None":
        assert found is None if not valid else found.secret["stringData"].keys() == {"token"}
        return
    roles = ("dispatcher", "worker", "sidecar", "viewer")
    assert set(found.certificates) == {"ca.crt", *(f"{role}.crt" for role in roles)}
    assert found.secret["stringData"].keys() == {f"{role}.key" for role in roles}
    assert found.renew_seconds < 24 * 3600


def test_the_secret_of_an_applied_input_is_not_due_at_the_start():
    """Thousands of these requests would delay all others after a restart."""
    for conditions, due in (
        ([ready()], False),
        ([ready("False", type="Applied", reason="Refused")], True),
        ([], True),
    ):
        applied = {**stored(encryption="None"), "status": {"conditions": conditions}}
        context = context_with(applied, ReadOnly())
        context.store.put(dispatcher_objects(resource(), SETTINGS)[0])
        found: Any = asyncio.run(observe(context, KEY))
        assert bool(found.secret) is due
    invalid_before = context_with({**stored(), "status": {"conditions": [ready()]}}, ReadOnly())
    found = asyncio.run(observe(invalid_before, KEY))
    assert found.secret, "it has no children"


class Issuers(Server):
    """The same, and a Secret of cert-manager."""

    def __init__(self) -> None:
        super().__init__()
        self.secret: dict[str, Any] | None
        self.renew()

    def renew(self) -> None:
        """Write an authority with a new key and a new issuer."""
        fields = PlatformRoot().secret()
        self.tls_crt = fields["tls.crt"]
        data = {key: base64.b64encode(value).decode() for key, value in fields.items()}
        self.secret = {"data": data}

    async def get(self, kind: object, *place: object) -> dict[str, Any] | None:
        if place[-1] == "authority":
            assert (kind, place[0]) == (SECRET, "operators")
            return self.secret
        if kind is INPUT:
            return stored()
        return await super().get(kind)


def with_issuer(server: Issuers, *children: dict[str, Any]) -> Any:
    """Observe an encrypted input that has these children."""
    context = context_with(stored(encryption="All"), server)
    context.issuer = IssuerSecret(context.api, "operators", "authority")
    for one in children:
        context.store.put(one)
    return asyncio.run(observe(context, KEY))


def child(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "team", "labels": {names.INPUT_LABEL: "digits"}}


def certificates(data: Mapping[str, str]) -> dict[str, Any]:
    meta = child("digits-distributed-input-tls")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}


def test_the_authority_of_an_input_is_signed():
    found = with_issuer(Issuers())
    assert found.certificates["worker.crt"].count("BEGIN CERTIFICATE") == 3
    assert (found.missing, found.unsigned) == ((), None)


def test_a_new_input_waits_for_the_issuer():
    server = Issuers()
    server.secret = None
    found = with_issuer(server)
    (failure,) = found.missing
    assert (failure.reason, failure.passing) == ("AuthorityUnusable", True)
    assert "Secret authority in namespace operators" in failure.message
    assert found.certificates == {}


def test_an_input_that_exists_continues_without_the_issuer():
    server = Issuers()
    before = with_issuer(server).certificates
    server.secret = None
    found = with_issuer(server, certificates(before))
    assert found.unsigned.reason == "SecretMissing"
    assert (found.missing, found.certificates) == ((), before)


def test_an_input_that_waits_for_the_issuer_waits_after_its_status_was_written():
    server = Issuers()
    server.secret = None
    waiting = stored(encryption="All")
    applied = {"type": "Applied", "status": "False", "reason": "AuthorityUnusable", "message": "x"}
    waiting["status"] = {"conditions": [{**applied, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    context = context_with(waiting, server)
    context.issuer = IssuerSecret(context.api, "operators", "authority")
    found = asyncio.run(observe(context, KEY))
    assert found
    assert found.status.conditions
    assert [one.reason for one in found.missing] == ["AuthorityUnusable"]


def test_workers_get_the_modules_and_the_rollout_is_paced():
    context = context_with(
        stored(dataset={"type": "EntryPoint", "entryPoint": {"function": "digits:make"}}), Server()
    )
    before: Any = asyncio.run(observe(context, KEY))
    context.ledger.set_policy(PolicySpec.model_validate({"modules": ["digits"]}))
    after: Any = asyncio.run(observe(context, KEY))
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
    found: Any = asyncio.run(observe(context, KEY))
    assert found.namespace_labels is None
    budget = {"name": "a", "namespaceSelector": {"matchLabels": {"of": "us"}}}
    context.ledger.set_policy(PolicySpec.model_validate({"budgets": [budget]}))
    found = asyncio.run(observe(context, KEY))
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


def test_an_input_without_a_ready_dispatcher_needs_no_connection(monkeypatch):
    context = context_with(stored(), Server())
    closed: list[Any] = []
    monkeypatch.setattr(context.dispatchers, "close", closed.append)
    assert asyncio.run(observe(context, KEY)) is not None
    assert closed == [KEY]
