"""The token of an input is created once."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from distributed_input_operator.controller.tokens import TokenCache
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT, Kind
from tests.unit.distributed_input_operator.snapshots import resource


class Secrets:
    """An API server with at most one Secret, which records its requests."""

    def __init__(self, token: str = "") -> None:
        self._token = token
        self.calls: list[str] = []

    async def get(self, kind: Kind, *_: object) -> dict[str, Any] | None:
        if kind is INPUT:
            self.calls.append("get input")
            return {"metadata": {"uid": "u-1"}}
        self.calls.append("get")
        return self._secret() if self._token else None

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("create")
        if self._token:
            raise ApiError(409, "AlreadyExists", "it exists")
        self._token = manifest["stringData"]["token"]
        return self._secret()

    def _secret(self) -> dict[str, Any]:
        data = {"token": base64.b64encode(self._token.encode()).decode()}
        return {"metadata": {"name": "digits-distributed-input"}, "data": data}


@pytest.mark.parametrize(
    ("existing", "young", "calls"),
    [
        ("", True, ["create"]),
        ("", False, ["get", "get input", "create"]),
        ("known", True, ["create", "get"]),
        ("known", False, ["get"]),
    ],
)
def test_a_token_is_created_only_if_none_exists(existing, young, calls):
    api: Any = Secrets(existing)
    token = asyncio.run(TokenCache(api).token(resource(), young=young))
    assert api.calls == calls
    assert token == (existing or token)
    assert len(token) >= len(existing or 32 * "x")


def test_a_new_input_of_the_same_name_does_not_get_the_cached_token():
    async def scenario() -> list[str]:
        api: Any = Secrets("known")
        tokens = TokenCache(api)
        for uid in ("u-1", "u-2", "u-2"):
            one = resource()
            meta = one.metadata.model_copy(update={"uid": uid})
            await tokens.token(one.model_copy(update={"metadata": meta}))
        return list(api.calls)

    assert asyncio.run(scenario()) == ["get", "get"]
