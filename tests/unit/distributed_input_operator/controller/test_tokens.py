"""The token of an input is derived from a key, and its Secret is created but never read."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.controller.tokens import InputTokens, derive, secret_of
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT
from distributed_input_operator.objects.kind import Kind
from tests.unit.distributed_input_operator.snapshots import resource

KEY = ("team", "digits")
SHARED = "digits-distributed-input"


class Secrets:
    """An API server that has the input u-1 and these Secrets. It records its requests."""

    def __init__(self, *existing: str, key: bytes = b"") -> None:
        self.content: dict[str, Any] = dict.fromkeys(existing)
        if key:
            self.content["key"] = {"data": {"key": base64.b64encode(key).decode()}}
        self.calls: list[str] = []

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        self.calls.append(f"get {name}")
        if kind is INPUT:
            return {"metadata": {"uid": "u-1"}}
        assert (namespace, name) == ("operators", "key"), "the operator may read only this Secret"
        return self.content.get(name)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        name = manifest["metadata"]["name"]
        self.calls.append(f"create {name}")
        if name in self.content:
            raise ApiError(409, "AlreadyExists", "it exists")
        self.content[name] = manifest
        return manifest


class Story:
    """The tokens of an operator, with a clock that the test sets."""

    def __init__(self, *existing: str, key: bytes = 32 * b"k") -> None:
        self.api = Secrets(*existing, key=key)
        self.now = 0.0
        api: Any = self.api
        self.tokens = InputTokens(api, "operators", "key", lambda: self.now)

    def token(self, *, young: bool = False, uid: str = "u-1", applied: bool = False) -> str:
        """Return the token. Create its Secret if that is due."""
        one = resource()
        meta = one.metadata.model_copy(update={"uid": uid})
        one = one.model_copy(update={"metadata": meta})
        token = asyncio.run(self.tokens.token(one))
        self._create(one, token, young, applied)
        return token

    def authority(self, *, young: bool = False) -> InputAuthority:
        """Return the authority. Create the Secret with its keys if that is due."""
        one = resource(encryption="All")
        authority = asyncio.run(self.tokens.authority(one))
        self._create(one, authority, young)
        return authority

    def _create(self, one: Any, credentials: Any, young: bool, applied: bool = False) -> None:
        if self.tokens.is_due(one, applied=applied):
            secret = secret_of(one, credentials)
            asyncio.run(self.tokens.create(one, secret, young=young))

    def calls(self) -> list[str]:
        found, self.api.calls = self.api.calls, []
        return found


def test_the_secret_of_a_new_input_has_its_token():
    story = Story()
    token = story.token(young=True)
    assert story.calls() == ["get key", f"create {SHARED}"]
    secret = story.api.content[SHARED]
    assert secret["stringData"] == {"token": token}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_another_operator_with_the_same_key_computes_the_same_token():
    first, second = Story(), Story(SHARED)
    assert first.token() == second.token()
    assert second.calls() == ["get key", "get digits", f"create {SHARED}"]


def test_tokens_differ_by_input_and_by_key():
    key = 32 * b"k"
    found = [derive(key, "u-1"), derive(key, "u-2"), derive(32 * b"j", "u-1")]
    assert len(set(found)) == 3
    assert min(map(len, found)) >= 43  # 256 bits


def test_the_secret_is_checked_every_five_minutes_and_on_request():
    story = Story()
    story.token(young=True)
    story.calls()
    story.now = 299.0
    story.token()
    assert story.calls() == []
    story.now = 300.0
    del story.api.content[SHARED]
    story.token()
    assert story.calls() == ["get digits", f"create {SHARED}"]
    story.tokens.check(KEY)
    story.token()
    assert story.calls() == ["get digits", f"create {SHARED}"]


def test_a_new_leader_checks_the_secret_of_an_applied_input_within_five_minutes():
    """With thousands of inputs, these requests would delay all others after a start."""
    story = Story()
    story.token(applied=True)
    assert story.calls() == ["get key"]
    story.now = 300.0
    story.token(applied=True)
    assert story.calls() == ["get digits", f"create {SHARED}"]
    story.token(applied=True, uid="u-2")
    assert story.calls() == [], "another input of this name has its own time"


def test_a_new_input_waits_until_the_secret_of_its_predecessor_is_gone():
    story = Story(SHARED)
    with pytest.raises(ApiError, match="may still exist") as caught:
        story.token(young=True)
    assert caught.value.retryable
    story.now = 5.0
    del story.api.content[SHARED]
    story.token(young=True)
    assert story.api.content[SHARED]["stringData"]


def test_a_new_input_whose_operator_restarted_does_not_wait_forever():
    story = Story(SHARED)
    with pytest.raises(ApiError):
        story.token(young=True)
    story.now = 30.0
    assert story.token(young=True)


def test_the_key_is_created_once():
    story = Story(key=b"")
    first = story.token(young=True)
    assert story.calls() == ["get key", "create key", "get key", f"create {SHARED}"]
    assert story.token() == first
    again = Story(SHARED)
    again.api.content["key"] = story.api.content["key"]
    assert again.token() == first


@pytest.mark.parametrize("data", [{}, {"key": "!"}, {"key": "c2hvcnQ="}])
def test_an_unusable_key_is_reported_with_the_remedy(data):
    story = Story()
    story.api.content["key"] = {"data": data}
    with pytest.raises(ApiError, match="delete the Secret") as caught:
        story.token()
    assert caught.value.retryable
    assert SHARED not in story.api.content


def test_a_leftover_is_not_accepted_by_the_next_attempt():
    """The first attempt writes the status, so the input is not young any more."""
    story = Story(SHARED)
    for young in (True, False):
        with pytest.raises(ApiError, match="may still exist"):
            story.token(young=young)
    del story.api.content[SHARED]
    assert story.token()
    assert SHARED in story.api.content
    meta = resource().metadata
    story.tokens.check((meta.namespace or "", meta.name))
    assert story.token(), "the Secret is its own"


def test_an_encrypted_input_gets_private_keys_and_no_token():
    story = Story()
    authority = story.authority(young=True)
    assert story.calls() == ["get key", f"create {SHARED}-tls"]
    secret = story.api.content[f"{SHARED}-tls"]
    roles = ("dispatcher", "worker", "sidecar", "viewer")
    assert secret["stringData"] == {f"{role}.key": authority.key(role) for role in roles}
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "u-1"
