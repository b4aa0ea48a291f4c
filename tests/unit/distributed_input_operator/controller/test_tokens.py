"""The token of an input: made once, whoever was first."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from distributed_input_operator.controller.tokens import Tokens
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT, Kind
from tests.unit.distributed_input_operator.snapshots import resource


class Secrets:
    """An API server with one input and at most one Secret; counts what it is asked."""

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
            raise ApiError(409, "AlreadyExists", "it is there")
        self._token = manifest["stringData"]["token"]
        return self._secret()

    def _secret(self) -> dict[str, Any]:
        data = {"token": base64.b64encode(self._token.encode()).decode()}
        return {"metadata": {"name": "digits-distributed-input"}, "data": data}


@pytest.mark.parametrize(
    ("there", "young", "calls"),
    [
        ("", True, ["create"]),
        ("", False, ["get", "get input", "create"]),
        ("known", True, ["create", "get"]),
        ("known", False, ["get"]),
    ],
)
def test_a_token_is_made_only_where_there_is_none(there, young, calls):
    api: Any = Secrets(there)
    token = asyncio.run(Tokens(api).token(resource(), young=young))
    assert api.calls == calls
    assert token == (there or token)
    assert len(token) >= len(there or 32 * "x")
