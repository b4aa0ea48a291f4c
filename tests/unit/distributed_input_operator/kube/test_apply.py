"""Refusals of the API server: which are retried, and how they are reported."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.apply import apply, failure, write_status
from distributed_input_operator.kube.store import Store
from distributed_input_operator.reconcile.status import input_status
from tests.unit.distributed_input_operator.snapshots import (
    NOW,
    after,
    plan,
    snapshot,
)

_NOT_TYPED = (
    "PATCH /x: failed to create typed patch object (team/d; apps/v1, Kind=Deployment): "
    ".spec.template.spec.tolerationz: field not declared in schema"
)


def test_a_schema_error_is_not_retried_although_its_status_is_500():
    error = ApiError(500, "500", _NOT_TYPED)
    assert not error.retryable
    found = failure(error)
    assert (found.reason, found.passing) == ("Refused", False)
    assert "tolerationz" in found.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(409, "Leftover", "Service d-worker still exists"), "Leftover"),
        (ApiError(500, "InternalError", "failed calling webhook"), "InternalError"),
        (ApiError(502, "502", "bad gateway"), "ServerError"),
    ],
)
def test_a_failure_that_is_retried_is_reported(error, reason):
    found = failure(error)
    assert (found.reason, found.passing) == (reason, True)
    assert str(error) in found.message


def test_the_first_message_of_a_retried_failure_stays():
    new = snapshot()
    planned = plan(new, NOW)
    first = input_status(new, planned, [failure(ApiError(0, "Unreachable", "port 40001"))], NOW)
    found = replace(new, status=Status.model_validate(first))
    again = failure(ApiError(0, "Unreachable", "port 40002"))
    assert input_status(found, planned, [again], NOW) is None
    other = failure(ApiError(500, "InternalError", "failed calling webhook"))
    assert input_status(found, planned, [other], NOW) is not None
    refused = failure(ApiError(422, "Invalid", "port 40002"))
    assert input_status(found, planned, [refused], NOW) is not None


class Server:
    """An API server that accepts every object, but fails to annotate a pod with `error`."""

    def __init__(self, error: ApiError) -> None:
        self._error = error
        self.applied: list[str] = []

    async def annotate(self, *_: object) -> None:
        raise self._error

    async def get(self, *_: object) -> None:
        return None

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.applied.append(manifest["kind"])
        return manifest

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return await self.apply(manifest)


def applied_with_error(error: ApiError) -> tuple[list[ApiError], int]:
    """Apply a plan with a deletion cost. Return the errors and the number of applied objects."""
    server: Any = Server(error)
    planned = replace(plan(snapshot(), NOW), costs=(("w1", -1000),))
    return asyncio.run(apply(server, Store(), snapshot(), planned)), len(server.applied)


def test_a_missing_right_to_patch_pods_does_not_block_other_writes():
    error = ApiError(
        403, "Forbidden", 'pods "w1" is forbidden: User "o" cannot patch resource "pods"'
    )
    assert applied_with_error(error) == ([error], 8)


def test_a_deletion_cost_is_retried_before_the_replicas_decrease():
    error = ApiError(429, "TooManyRequests", "later")
    assert applied_with_error(error) == ([error], 0)
    gone = ApiError(404, "NotFound", "no such pod")
    assert applied_with_error(gone) == ([], 8)


class TakenNames:
    """An API server that has an object of each name already."""

    def __init__(self, **metadata: Any) -> None:
        self._metadata = metadata
        self.applied: list[str] = []

    async def get(self, *_: object) -> dict[str, Any]:
        return {"metadata": self._metadata}

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if "resourceVersion" in manifest["metadata"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.applied.append(manifest["kind"])
        return manifest

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        raise ApiError(409, "AlreadyExists", "it exists")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "NameTaken"),
        (
            {
                "labels": {"distributed-input.dev/input": "digits"},
                "ownerReferences": [{"uid": "deleted"}],
            },
            "Leftover",
        ),
        ({"labels": {"distributed-input.dev/input": "digits"}}, "NameTaken"),
        ({"ownerReferences": [{"uid": "another"}]}, "NameTaken"),
    ],
)
def test_an_object_of_another_owner_is_not_changed(metadata, reason):
    server: Any = TakenNames(**metadata)
    errors = asyncio.run(apply(server, Store(), snapshot(), plan(snapshot(), NOW)))
    assert ({error.reason for error in errors}, server.applied) == ({reason}, [])
    assert {error.retryable for error in errors} == {reason == "Leftover"}
    if reason == "NameTaken" and "labels" in metadata:
        for error in errors:
            assert "deleted with --cascade=orphan: run `kubectl delete" in str(error)
            assert " -n team -l distributed-input.dev/input=digits`" in str(error)


def test_an_unknown_object_of_the_input_is_applied():
    meta = {"name": "digits-distributed-input", "namespace": "team", "resourceVersion": "1"}
    server: Any = TakenNames(ownerReferences=[{"uid": "u-1"}], uid="c-1", **meta)
    assert asyncio.run(apply(server, Store(), snapshot(), plan(snapshot(), NOW))) == []
    assert len(server.applied) == 7
    assert "ServiceAccount" not in server.applied  # It is never changed.


@pytest.mark.parametrize(
    ("message", "reason", "remedy"),
    [
        ('User "o" cannot patch resource "pods" in API group ""', "Forbidden", "or grant it"),
        ("exceeded quota: tight, requested: count/services=1", "QuotaExceeded", "exceeded quota"),
        ('admission webhook "policy" denied the request: no', "Refused", "rule that refuses it"),
        ("namespace team is being terminated", "Refused", "rule that refuses it"),
    ],
)
def test_a_403_gets_the_remedy_of_the_component_that_refused(message, reason, remedy):
    found = failure(ApiError(403, "Forbidden", f"PATCH /x: {message}"))
    assert found.reason == reason
    assert remedy in found.message


class Versioned:
    """An API server with one input, which compares versions. It keeps the written statuses."""

    def __init__(self, uid: str, version: str) -> None:
        self.meta = {"name": "digits", "namespace": "team", "uid": uid, "resourceVersion": version}
        self.written: list[Any] = []

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any]:
        return {"kind": "DistributedInput", "metadata": self.meta}

    async def apply(self, manifest: dict[str, Any], subresource: str) -> dict[str, Any]:
        if manifest["metadata"]["resourceVersion"] != self.meta["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.written.append(manifest["status"])
        return {"kind": "DistributedInput", "metadata": {**self.meta, "resourceVersion": "99"}}


@pytest.mark.parametrize(
    ("live_uid", "written"), [("u-1", [{"a": 1}]), ("u-2", [])], ids=["changed", "created again"]
)
def test_a_status_of_an_earlier_version_is_written_to_the_same_input_only(live_uid, written):
    store, api = Store(), Versioned(live_uid, "7")
    before = {**api.meta, "uid": "u-1", "resourceVersion": "5"}
    store.put({"kind": "DistributedInput", "metadata": before})
    server: Any = api
    wrote = asyncio.run(write_status(server, store, "team", "digits", {"a": 1}, uid="u-1"))
    assert (wrote, api.written) == (bool(written), written)


def test_a_status_that_others_keep_changing_is_an_error_that_is_retried_later():
    class Busy(Versioned):
        reads = 0

        async def get(self, *_: Any) -> dict[str, Any]:
            self.reads += 1
            assert self.reads < 9, "the attempts have no limit"
            return {"kind": "DistributedInput", "metadata": {**self.meta, "resourceVersion": "5"}}

    store, api = Store(), Busy("u-1", "7")
    store.put(asyncio.run(api.get()))
    server: Any = api
    with pytest.raises(ApiError, match="modified"):
        asyncio.run(write_status(server, store, "team", "digits", {}, uid="u-1"))
    assert (api.reads, api.written) == (5, [])


@pytest.mark.parametrize("created_again", [True, False])
def test_no_status_is_written_for_an_input_that_the_store_has_no_longer(created_again):
    store, api = Store(), Versioned("u-2", "7")
    if created_again:
        store.put({"kind": "DistributedInput", "metadata": api.meta})
    server: Any = api
    assert not asyncio.run(write_status(server, store, "team", "digits", {}, uid="u-1"))
    assert api.written == []


def test_an_input_that_is_deleted_while_its_status_is_written_stays_deleted():
    class Slow(Versioned):
        async def apply(self, manifest: dict[str, Any], subresource: str) -> dict[str, Any]:
            answer = await super().apply(manifest, subresource)
            store.drop({"kind": "DistributedInput", "metadata": self.meta})
            return answer

    store, api = Store(), Slow("u-1", "7")
    store.put({"kind": "DistributedInput", "metadata": api.meta})
    server: Any = api
    assert asyncio.run(write_status(server, store, "team", "digits", {"a": 1}, uid="u-1"))
    assert (api.written, store.input(("team", "digits"))) == ([{"a": 1}], None)


def test_a_deployment_that_keeps_its_template_gets_only_its_replicas():
    class Scaled:
        def __init__(self) -> None:
            self.calls: list[Any] = []

        async def scale(self, namespace: str, live: Any, replicas: int) -> Any:
            self.calls.append((namespace, live["metadata"]["name"], replicas))
            return {**live, "metadata": {**live["metadata"], "resourceVersion": "2"}}

    new = snapshot()
    applied = after(new, plan(new))
    planned = replace(plan(applied), scales=(("digits-worker", 4),))
    api: Any = Scaled()
    assert asyncio.run(apply(api, Store(), applied, planned)) == []
    assert api.calls == [("team", "digits-worker", 4)]
