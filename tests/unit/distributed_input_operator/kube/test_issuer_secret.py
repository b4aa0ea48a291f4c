"""The Secret of cert-manager: read seldom, and each problem has its place and its remedy."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import pytest

from distributed_input_operator.certificates.issuer import Issuer, UnusableIssuer
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.issuer_secret import SECONDS, IssuerSecret
from testing.issuer import PlatformRoot

ROOT = PlatformRoot()


class Server:
    """An API server with one Secret."""

    def __init__(self) -> None:
        self.reads, self.error = 0, 200
        self.data: dict[str, str] | None = None
        self.put(ROOT.secret())

    def put(self, fields: dict[str, bytes]) -> None:
        self.data = {key: base64.b64encode(value).decode() for key, value in fields.items()}

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        assert kind.path(namespace, name) == "/api/v1/namespaces/system/secrets/authority"
        self.reads += 1
        await asyncio.sleep(0)  # Others request it meanwhile.
        if self.error != 200:
            raise ApiError(self.error, "Reason", "no response")
        return None if self.data is None else {"data": self.data}


class Story:
    def __init__(self) -> None:
        self.server, self.now = Server(), 0.0
        self.secret = IssuerSecret(cast(Api, self.server), "system", "authority", lambda: self.now)

    def current(self) -> Issuer | UnusableIssuer:
        return asyncio.run(self.secret.current())


def test_the_secret_is_read_once_in_30_seconds():
    story = Story()
    found = []
    for at, reads in ((0.0, 1), (SECONDS - 1, 1), (SECONDS, 2)):
        story.now = at
        found.append(story.current())
        assert story.server.reads == reads
        story.server.put(ROOT.secret())
    assert found[0] is found[1]
    assert found[2] != found[0], "what cert-manager has renewed"


async def test_inputs_that_come_together_share_one_read():
    story = Story()
    await asyncio.gather(*(story.secret.current() for _ in range(50)))
    assert story.server.reads == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [(None, "SecretMissing"), ({}, "SecretMalformed"), ({"tls.crt": "?"}, "SecretMalformed")],
)
def test_a_problem_names_the_secret_and_is_logged_once(data, reason, caplog):
    story = Story()
    story.server.data = data
    for _ in range(3):
        found = story.current()
        assert isinstance(found, UnusableIssuer)
        assert found.reason == reason
        assert str(found).startswith("Secret authority in namespace system: ")
        story.now += SECONDS
    assert len(caplog.records) == 1
    story.server.put(ROOT.secret())
    assert isinstance(story.current(), Issuer)


def test_a_secret_that_may_not_be_read_is_no_error_so_renewals_continue():
    story = Story()
    story.server.error = 403
    found = story.current()
    assert isinstance(found, UnusableIssuer)
    assert found.reason == "SecretForbidden"
    assert str(found).startswith("Secret authority in namespace system: the operator may not read")
    assert "no response" in str(found), "what the API server said"


@pytest.mark.parametrize("status", [0, 500])
def test_a_server_that_does_not_respond_is_an_error_that_is_tried_again(status):
    story = Story()
    story.server.error = status
    with pytest.raises(ApiError):
        story.current()
    story.server.error = 200
    assert isinstance(story.current(), Issuer)
