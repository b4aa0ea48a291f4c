"""What becomes of the API server's refusals: which are tried again, and what is told of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.controller.dispatchers import Dispatchers
from distributed_input_operator.controller.observe import Sources
from distributed_input_operator.controller.reconcile import reconcile
from distributed_input_operator.controller.tokens import Tokens
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.apply import apply, failure
from distributed_input_operator.kube.store import Store
from distributed_input_operator.reconcile.plan import plan, report
from tests.unit.distributed_input_operator.snapshots import NOW, SETTINGS, resource, snapshot

_NOT_TYPED = (
    "PATCH /x: failed to create typed patch object (team/d; apps/v1, Kind=Deployment): "
    ".spec.template.spec.tolerationz: field not declared in schema"
)


def test_a_schema_error_is_a_refusal_though_the_server_answers_500():
    error = ApiError(500, "500", _NOT_TYPED)
    assert not error.retryable
    told = failure(error)
    assert (told.reason, told.passing) == ("Refused", False)
    assert "tolerationz" in told.message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ApiError(409, "Leftover", "Service d-worker is still there"), "Leftover"),
        (ApiError(500, "InternalError", "failed calling webhook"), "InternalError"),
        (ApiError(502, "502", "bad gateway"), "ServerError"),
    ],
)
def test_what_is_tried_again_is_told(error, reason):
    told = failure(error)
    assert (told.reason, told.passing) == (reason, True)
    assert str(error) in told.message


def test_the_words_of_what_is_tried_again_stay_for_a_new_status_is_a_new_look():
    young = snapshot()
    made = plan(young, NOW)
    first = report(young, made, [failure(ApiError(0, "Unreachable", "port 40001"))], NOW)
    told = replace(young, status=Status.model_validate(first))
    again = failure(ApiError(0, "Unreachable", "port 40002"))
    assert report(told, made, [again], NOW) is None
    other = failure(ApiError(500, "InternalError", "failed calling webhook"))
    assert report(told, made, [other], NOW) is not None
    refused = failure(ApiError(422, "Invalid", "port 40002"))
    assert report(told, made, [refused], NOW) is not None


class Server:
    """An API server that takes what it is given; whoever marks a pod gets `error`."""

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


def shrunk(error: ApiError) -> tuple[list[ApiError], int]:
    """What comes of a plan that marks a pod: errors, and how many objects were applied."""
    server: Any = Server(error)
    made = replace(plan(snapshot(), NOW), costs=(("w1", -1000),))
    return asyncio.run(apply(server, Store(), snapshot(), made)), len(server.applied)


def test_a_right_to_mark_pods_that_is_missing_holds_nothing_else_up():
    error = ApiError(
        403, "Forbidden", 'pods "w1" is forbidden: User "o" cannot patch resource "pods"'
    )
    assert shrunk(error) == ([error], 8)


def test_a_mark_that_may_still_succeed_is_set_before_the_number_shrinks():
    error = ApiError(429, "TooManyRequests", "later")
    assert shrunk(error) == ([error], 0)
    gone = ApiError(404, "NotFound", "no such pod")
    assert shrunk(gone) == ([], 8)


class Taken:
    """An API server that has an object under each name already."""

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


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "NameTaken"),
        ({"labels": {"distributed-input.dev/input": "digits"}}, "Leftover"),
        ({"ownerReferences": [{"uid": "another"}]}, "NameTaken"),
    ],
)
def test_what_is_there_and_not_ours_is_left_alone(metadata, reason):
    server: Any = Taken(**metadata)
    errors = asyncio.run(apply(server, Store(), snapshot(), plan(snapshot(), NOW)))
    assert ({error.reason for error in errors}, server.applied) == ({reason}, [])


def test_what_is_ours_and_was_not_known_is_applied():
    server: Any = Taken(ownerReferences=[{"uid": "u-1"}], uid="c-1")
    assert asyncio.run(apply(server, Store(), snapshot(), plan(snapshot(), NOW))) == []
    assert len(server.applied) == 8


@pytest.mark.parametrize(
    ("words", "reason", "remedy"),
    [
        ('User "o" cannot patch resource "pods" in API group ""', "Forbidden", "or grant it"),
        ("exceeded quota: tight, requested: count/services=1", "QuotaExceeded", "exceeded quota"),
        ('admission webhook "policy" denied the request: no', "Refused", "rule that refuses it"),
        ("namespace team is being terminated", "Refused", "rule that refuses it"),
    ],
)
def test_a_refusal_with_403_gets_the_remedy_of_who_refused(words, reason, remedy):
    told = failure(ApiError(403, "Forbidden", f"PATCH /x: {words}"))
    assert told.reason == reason
    assert remedy in told.message


def test_while_the_token_is_not_there_it_is_told_and_nothing_is_started():
    class Leftovers:
        """An API server with another input's Secret under our name."""

        def __init__(self) -> None:
            self.statuses: list[Any] = []

        async def get(self, *_: object) -> dict[str, Any]:
            owners = [{"uid": "another"}]
            return {"metadata": {"name": "digits-distributed-input", "ownerReferences": owners}}

        async def create(self, *_: object) -> None:
            raise ApiError(409, "AlreadyExists", "it is there")

        async def apply(self, manifest: dict[str, Any], subresource: str = "") -> dict[str, Any]:
            assert subresource == "status"
            self.statuses.append(manifest["status"])
            return {**manifest, "metadata": {**manifest["metadata"], "uid": "u-1"}}

    api: Any = Leftovers()
    store = Store()
    store.put(resource().model_dump(mode="json", by_alias=True, exclude_none=True))
    sources = Sources(api, store, Tokens(api), Dispatchers(), SETTINGS)
    with pytest.raises(ApiError, match="still there"):
        asyncio.run(reconcile(sources, ("team", "digits")))
    (status,) = api.statuses
    told = {one["type"]: one["reason"] for one in status["conditions"]}
    assert (told["Applied"], told["Ready"]) == ("Leftover", "Leftover")
