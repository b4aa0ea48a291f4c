"""The webhook's address in the custom resource definition."""

from __future__ import annotations

import asyncio
import base64
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.webhook import rotation
from distributed_input_operator.webhook.certificates import server_context
from distributed_input_operator.webhook.definition import client_config, conversion_path
from distributed_input_operator.webhook.rotation import CertificatePublisher, SecretCertificate

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
NAME = "distributedinputs.distributed-input.dev"
SERVICE = {"name": "s", "namespace": "n", "port": 443}


class FakeApi:
    """An API server with one Secret, one webhook configuration and one definition."""

    def __init__(self, **conversion: Any) -> None:
        self.secret: Any = None
        self.config: dict[str, Any] = {"service": dict(SERVICE)}
        self.conversion = conversion
        self.writes = 0
        self.conflicts = 0

    @property
    def address(self) -> dict[str, Any]:
        found: dict[str, Any] = self.conversion["webhook"]["clientConfig"]
        return found

    async def get(self, *_: Any) -> Any:
        return self.secret

    async def create(self, secret: Any) -> None:
        self.secret = secret

    async def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        if method == "PUT":
            self.secret = body
            return None
        if "customresourcedefinitions" not in path:
            if method == "PATCH":
                self.config = body[1]["value"]
            return {"webhooks": [{"name": "inject", "clientConfig": self.config}]}
        if not self.conversion:
            raise ApiError(404, "NotFound", "GET x: not found")
        if method == "PATCH":
            self.writes += 1
            if self.conflicts:
                self.conflicts -= 1
                raise ApiError(422, "Invalid", "PATCH x: the server rejected our request")
            assert body[0]["value"] == self.address
            self.conversion["webhook"]["clientConfig"] = body[1]["value"]
        return {"spec": {"conversion": self.conversion}}


def with_webhook() -> FakeApi:
    return FakeApi(strategy="Webhook", webhook={"clientConfig": {"service": dict(SERVICE)}})


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The certificate chains that the server used."""
    chains: list[bytes] = []
    monkeypatch.setattr(rotation.certificates, "load", lambda _, chain, key: chains.append(chain))
    return chains


def processes(api: FakeApi) -> tuple[CertificatePublisher, SecretCertificate]:
    client: Any = api
    return (
        CertificatePublisher(client, "operators", ["localhost"], definitions=[NAME]),
        SecretCertificate(client, "operators", server_context(), definitions=[NAME]),
    )


def refresh(api: FakeApi, now: datetime = NOW) -> SecretCertificate:
    publisher, served = processes(api)
    asyncio.run(publisher.refresh(now))
    asyncio.run(served.refresh(now))
    return served


def test_the_definition_gets_bundle_and_path(loaded):
    api = with_webhook()
    served = refresh(api)
    assert base64.b64decode(api.address["caBundle"]).startswith(b"-----BEGIN CERTIFICATE")
    service = dict(api.address["service"])
    head, _, last = service.pop("path").rpartition("/")
    assert (head, service) == ("/convert", SERVICE)
    assert last in served.conversion_paths
    assert last not in served.paths  # Who can read the definition cannot send trainer pods.


def test_a_change_of_the_definition_would_end_all_watches_so_the_path_stays(loaded):
    api = with_webhook()
    for hours in range(24):
        refresh(api, NOW + timedelta(hours=hours))
    assert api.writes == 1


def test_a_renewed_certificate_is_served_when_the_definition_trusts_it(loaded):
    api = with_webhook()
    refresh(api)
    before = api.address
    publisher, served = processes(api)
    asyncio.run(served.refresh(NOW))
    later = NOW + timedelta(days=61)
    asyncio.run(publisher.refresh(later))
    renewed = api.address
    assert renewed["caBundle"] != before["caBundle"]
    count = len(loaded)
    api.conversion["webhook"]["clientConfig"] = before
    for _ in range(3):
        asyncio.run(served.refresh(later))
    assert len(loaded) == count
    api.conversion["webhook"]["clientConfig"] = renewed
    for _ in range(2):
        asyncio.run(served.refresh(later))
    assert len(loaded) == count + 1


def test_trainer_pods_do_not_wait_for_the_definition(loaded):
    api = with_webhook()
    _, served = processes(api)
    refresh(api)
    api.conversion["webhook"]["clientConfig"] = {"service": dict(SERVICE)}
    asyncio.run(served.refresh(NOW))
    assert len(loaded) == 2


@pytest.mark.parametrize("conversion", [{}, {"strategy": "None"}])
def test_a_definition_without_a_webhook_stays(loaded, conversion):
    api = FakeApi(**conversion)
    refresh(api)
    assert api.writes == 0
    assert api.conversion == conversion
    assert len(loaded) == 1


def test_a_conflict_with_another_replica_is_repaired_by_the_next_check(loaded):
    api = with_webhook()
    api.conflicts = 1
    publisher, _ = processes(api)
    asyncio.run(publisher.refresh(NOW))
    assert "caBundle" not in api.address
    asyncio.run(publisher.refresh(NOW))
    assert "caBundle" in api.address


def test_another_error_is_raised():
    class Forbidden(FakeApi):
        async def request(self, *_: Any, **__: Any) -> Any:
            raise ApiError(403, "Forbidden", "GET x: forbidden")

    api: Any = Forbidden()
    with pytest.raises(ApiError, match="forbidden"):
        asyncio.run(client_config(api, NAME))


def test_the_path_depends_on_the_key():
    assert conversion_path(b"a") != conversion_path(b"b")


class SeveralDefinitions(FakeApi):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.by_name = {name: with_webhook() for name in names}

    async def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        found = self.by_name.get(path.rpartition("/")[2])
        if found is None:
            return await super().request(method, path, body, headers)
        return await found.request(method, path, body, headers)


def test_each_definition_gets_bundle_and_path(loaded):
    definitions = (NAME, "inputpolicies.distributed-input.dev")
    api: Any = SeveralDefinitions(*definitions)
    publisher = CertificatePublisher(api, "operators", ["localhost"], definitions=definitions)
    served = SecretCertificate(api, "operators", server_context(), definitions=definitions)
    asyncio.run(publisher.refresh(NOW))
    asyncio.run(served.refresh(NOW))
    addresses = [api.by_name[name].address for name in definitions]
    assert addresses[0] == addresses[1]
    assert addresses[0]["service"]["path"].rpartition("/")[2] in served.conversion_paths
    # Both must trust a new certificate before it is served.
    publisher = CertificatePublisher(api, "operators", ["localhost"], definitions=definitions[:1])
    later = NOW + timedelta(days=61)
    asyncio.run(publisher.refresh(later))
    count = len(loaded)
    for _ in range(3):
        asyncio.run(served.refresh(later))
    assert len(loaded) == count
