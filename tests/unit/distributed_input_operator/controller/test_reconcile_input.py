"""Reconciliations of one input with an API server that refuses some of them."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.policy import PolicySpec
from distributed_input_operator import metrics
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.budget.claim import Claim, WorkerRequest
from distributed_input_operator.controller import budgets
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.reconcile.pace import RolloutState
from distributed_input_operator.reconcile.plan import QUIET_SECONDS
from tests.unit.distributed_input_operator.contexts import context_of
from tests.unit.distributed_input_operator.snapshots import (
    KEY_SECRET,
    SETTINGS,
    pods_status,
    resource,
)

KEY = ("team", "digits")
NEXT = replace(SETTINGS, pull_secrets=("registry",), revision="2")


class Server:
    """An API server that accepts every object, or fails for each Deployment with `error`."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.status_error: ApiError | None = None
        self.certificate_error: ApiError | None = None
        self.secret_error: ApiError | None = None
        self.input = stored_input(1)
        self.applied: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._version = 10

    async def get(self, *_: object) -> dict[str, Any]:
        return {**KEY_SECRET, "metadata": {"name": "digits", "uid": "u-1"}}

    async def apply(self, manifest: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        if subresource:
            if self.status_error is not None:
                raise self.status_error
            return self.stored({**self.input, "status": manifest["status"]})
        if self.error is not None and manifest["kind"] == "Deployment":
            raise self.error
        if self.certificate_error is not None and manifest["kind"] == "ConfigMap":
            raise self.certificate_error
        self.applied.append(manifest["metadata"]["name"])
        return self.stored(manifest)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["kind"] == "Event":
            self.events.append(manifest)
        if self.secret_error is not None and manifest["kind"] == "Secret":
            raise self.secret_error
        return self.stored(manifest)

    def stored(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        one = copy.deepcopy(dict(manifest))
        one["metadata"]["resourceVersion"] = str(self._version)
        one["metadata"].setdefault("uid", one["kind"] + one["metadata"]["name"])
        if one["kind"] == "Deployment":
            one["status"] = pods_status(one["spec"]["replicas"])
        return one


def new_context() -> tuple[ControllerContext, Server]:
    api: Any = Server()
    context = context_of(api)
    return context, api


def stored_input(version: int, uid: str = "u-1", **spec: Any) -> dict[str, Any]:
    one: dict[str, Any] = resource(**spec).model_dump(mode="json", exclude_none=True, by_alias=True)
    one["metadata"] |= {"resourceVersion": str(version), "uid": uid}
    return one


def reasons(server: Server) -> list[str]:
    return [one["reason"] for one in server.events]


REFUSALS = [
    ApiError(403, "Forbidden", "a policy denies the request"),
    ApiError(422, "Invalid", "spec.template: Invalid value"),
]


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_template_that_is_refused_fails_until_it_is_accepted(error):
    context, server = new_context()
    context.store.put(stored_input(1))
    await reconcile(context, KEY)
    context.settings = NEXT
    server.error = error
    for _ in range(2):
        await reconcile(context, KEY)
        assert context.rollouts.state(KEY) is RolloutState.FAILING
        assert reasons(server).count("RolloutFailing") == 1
    assert str(error) in str(server.events)
    server.error = ApiError(500, "InternalError", "etcd is slow")
    with pytest.raises(ApiError):
        await reconcile(context, KEY)
    assert context.rollouts.state(KEY) is RolloutState.FAILING
    server.error = None
    await reconcile(context, KEY)
    assert context.rollouts.state(KEY) is RolloutState.ROLLING


async def test_a_refusal_of_the_second_part_fails_too():
    context, server = new_context()
    context.store.put(stored_input(1))
    await reconcile(context, KEY)
    context.settings = NEXT
    await reconcile(context, KEY)  # The dispatcher.
    assert context.rollouts.state(KEY) is RolloutState.ROLLING
    server.error = REFUSALS[0]
    await reconcile(context, KEY)
    assert context.rollouts.state(KEY) is RolloutState.FAILING
    server.error = None
    await reconcile(context, KEY)
    await reconcile(context, KEY)
    assert context.rollouts.state(KEY) is RolloutState.UPDATED


def test_an_input_with_an_invalid_spec_counts_where_its_labels_say():
    context, _ = new_context()
    rest = {"name": "rest", "appliesTo": "OtherInputs", "limits": {"workers": 9}}
    own = {"name": "own", "selector": {"matchLabels": {"of": "us"}}, "limits": {"workers": 9}}
    context.ledger.set_policy(PolicySpec.model_validate({"budgets": [own, rest]}))
    context.ledger.request(WorkerRequest(Claim(KEY, 4, replicas=4), labels=None))
    stored = stored_input(1)
    stored["metadata"]["labels"] = {"of": "us"}
    context.store.put({**stored, "spec": {"workers": {"replicas": "many"}}})
    spec = {"replicas": 4, "template": {"spec": {}}}
    labels = names.labels("digits", names.WORKER)
    meta = {"name": "digits-worker", "namespace": "team", "uid": "u-w", "labels": labels}
    context.store.put({"kind": "Deployment", "metadata": meta, "spec": spec})
    asyncio.run(reconcile(context, KEY))
    assert [(one.inputs, one.used[0]) for one in context.ledger.usage()] == [(1, 4), (0, 0)]


def test_an_invalid_input_that_goes_while_labels_are_read_is_left_to_its_event(monkeypatch):
    context, _ = new_context()
    invalid = stored_input(1)
    invalid["spec"]["workers"] = {"replicas": "many"}
    context.store.put(invalid)

    async def keep(*_: object) -> None:
        context.store.drop(invalid)

    monkeypatch.setattr(budgets, "keep", keep)
    assert asyncio.run(reconcile(context, KEY)) is None


def test_the_certificates_of_an_input_with_an_invalid_spec_are_renewed_when_they_are_due():
    """Its processes run, and refuse all connections after their certificates expire."""
    context, _, certificates = encrypted_and_invalid()
    short, context.certificate_life = context.certificate_life, timedelta(hours=24)
    first = certificates()
    invalid = (context.store.input(KEY) or {})["spec"]
    assert (asyncio.run(reconcile(context, KEY)) or 0) > 0
    assert certificates() == first, "none is due"
    context.certificate_life = short
    asyncio.run(reconcile(context, KEY))
    second = certificates()
    assert all(second[f"{role}.crt"] != first[f"{role}.crt"] for role in ("dispatcher", "worker"))
    assert (context.store.input(KEY) or {})["spec"] == invalid


def encrypted_and_invalid() -> tuple[ControllerContext, Server, Any]:
    """Return an input with an invalid spec, and a function that returns its certificates."""
    context, server = new_context()
    stored = stored_input(1, encryption="All")
    context.store.put(stored)
    asyncio.run(reconcile(context, KEY))
    spec = {**stored["spec"], "workers": {"replicas": "many"}}
    server.input = {**stored, "spec": spec}
    context.store.put(server.stored(server.input))
    context.certificate_life = timedelta(seconds=1)
    place = ("ConfigMap", names.certificates("digits"))
    return context, server, lambda: context.store.children(KEY)[place]["data"]


@pytest.mark.parametrize("part", ["status", "budgets"])
def test_certificates_are_renewed_although_another_step_fails(part, monkeypatch):
    context, server, certificates = encrypted_and_invalid()
    first = certificates()
    refused = ApiError(422, "Invalid", "status.conditions: Invalid value")
    if part == "status":
        server.status_error = refused
    else:

        async def keep(*_: object) -> None:
            raise refused

        monkeypatch.setattr(budgets, "keep", keep)
    with pytest.raises(ApiError):
        asyncio.run(reconcile(context, KEY))
    assert certificates()["worker.crt"] != first["worker.crt"]


def test_an_invalid_spec_is_reported_although_its_certificates_are_not_renewed():
    context, server, _ = encrypted_and_invalid()
    server.certificate_error = ApiError(500, "InternalError", "etcd is slow")
    with pytest.raises(ApiError, match="etcd"):
        asyncio.run(reconcile(context, KEY))
    conditions = (context.store.input(KEY) or {})["status"]["conditions"]
    assert any("spec.workers.replicas" in one["message"] for one in conditions)


def test_an_invalid_input_without_certificates_is_looked_at_again():
    """A later operator, or another policy, may be able to use it."""
    context, _ = new_context()
    invalid = stored_input(1)
    invalid["spec"]["workers"] = {"replicas": "many"}
    context.store.put(invalid)
    assert asyncio.run(reconcile(context, KEY)) == QUIET_SECONDS


def test_an_input_of_another_class_leaves_no_state_of_its_predecessor():
    """The new input may arrive before the deletion of the old one was reconciled."""
    context, _ = new_context()
    context.rollouts.request(KEY, RolloutState.ROLLING)
    context.set_autoscaling_state(KEY, "u-1", AutoscalingState(4))
    context.ledger.request(WorkerRequest(Claim(KEY, 4, replicas=4)))
    metrics.DESIRED.set(KEY, 4)
    context.store.put(stored_input(1))
    context.store.put(stored_input(2, "u-2", managedBy="distributed-input.dev/canary"))
    assert asyncio.run(reconcile(context, KEY)) is None
    assert context.rollouts.state(KEY) is RolloutState.SETTLED
    assert context.autoscaling_state(KEY, "u-1") is None
    assert KEY not in context.ledger._claims
    assert 'workers_desired{input="digits"' not in metrics.exposition().decode()


@pytest.mark.parametrize("encryption", ["All", "None"])
def test_a_secret_that_is_refused_does_not_stop_the_other_writes(encryption):
    """A quota refuses a Secret before the API server sees that it exists."""
    context, server = new_context()
    server.secret_error = ApiError(403, "Forbidden", "exceeded quota: secrets")
    context.store.put(stored_input(1, encryption=encryption))
    asyncio.run(reconcile(context, KEY))
    certificates = names.certificates("digits")
    assert "digits-dispatcher" in server.applied
    assert (certificates in server.applied) is (encryption == "All")
    assert "QuotaExceeded" in reasons(server)


def test_without_its_own_secret_no_child_is_created():
    """The pods would start with the token of a deleted input."""
    context, server = new_context()
    server.secret_error = ApiError(409, "AlreadyExists", "it exists")
    context.store.put(stored_input(1))
    with pytest.raises(ApiError, match="deleted input may still exist"):
        asyncio.run(reconcile(context, KEY))
    assert server.applied == []
    conditions = (context.store.input(KEY) or {})["status"]["conditions"]
    assert {"Applied", "Ready"} <= {
        one["type"] for one in conditions if one["reason"] == "Leftover"
    }


async def test_an_input_whose_spec_becomes_invalid_frees_its_slot():
    context, _ = new_context()
    context.rollouts.request(KEY, RolloutState.ROLLING)
    invalid = stored_input(1)
    invalid["spec"]["workers"] = {"replicas": "many"}
    context.store.put(invalid)
    await reconcile(context, KEY)
    assert context.rollouts.state(KEY) is RolloutState.SETTLED
