"""Renewal of certificates, certificates of other programs, and errors."""

from __future__ import annotations

import asyncio
import base64
import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.webhook import rotation
from distributed_input_operator.webhook.certificates import generate, server_context
from distributed_input_operator.webhook.rotation import (
    CertificatePublisher,
    MountedCertificate,
    SecretCertificate,
    SharedObjects,
    refresh_forever,
)

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)


def mount(folder: Path) -> None:
    """Write a certificate as cert-manager mounts it."""
    made = generate(["localhost"], NOW)
    (folder / "tls.crt").write_bytes(made.chain)
    (folder / "tls.key").write_bytes(made.key)


def test_a_mounted_certificate_is_loaded_whenever_it_changes(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(rotation.certificates, "load", lambda _, *pair: loaded.append(pair))
    mounted = MountedCertificate(tmp_path, server_context())
    for _ in range(2):
        mount(tmp_path)
        asyncio.run(mounted.refresh(NOW))
        asyncio.run(mounted.refresh(NOW))
    assert len(set(loaded)) == len(loaded) == 2


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(OSError, match=r"tls\.crt"):
        asyncio.run(MountedCertificate(tmp_path, server_context()).refresh(NOW))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            ApiError(403, "Forbidden", "PATCH x: forbidden"),
            "grant this permission with the chart's role",
        ),
        (ApiError(404, "NotFound", "GET x: not found"), "install the webhook with the chart"),
        (FileNotFoundError("no tls.crt"), "mount a folder with tls.crt and tls.key"),
    ],
)
def test_an_error_is_logged_once_with_its_remedy(error, remedy, monkeypatch, caplog):
    monkeypatch.setattr(rotation, "_RETRY_SECONDS", 0.0)
    errors = [error, error, error]

    async def refresh(_now: datetime) -> None:
        if errors:
            raise errors.pop()

    async def scenario() -> None:
        ready = asyncio.Event()
        refreshing = asyncio.create_task(refresh_forever(refresh, ready))
        await asyncio.wait_for(ready.wait(), 10)
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    (record,) = caplog.records
    assert remedy in record.getMessage()
    assert errors == []


class FakeApi:
    """An API server with one Secret and one webhook configuration."""

    def __init__(self) -> None:
        self.secret: Any = None
        self.config: dict[str, Any] = {"service": {"name": "s", "namespace": "n", "port": 443}}
        self.conflicts = 0
        self.written_meanwhile: list[dict[str, Any]] = []
        self.writes = 0

    @property
    def bundle(self) -> bytes:
        return base64.b64decode(self.config.get("caBundle", ""))

    async def get(self, *_: Any) -> Any:
        return self.secret

    async def create(self, secret: Any) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "AlreadyExists", "POST x: exists")
        self.secret = secret

    async def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        if method == "GET":
            return {"webhooks": [{"name": "inject", "clientConfig": self.config}]}
        self.writes += 1
        if method == "PATCH":
            if self.written_meanwhile:
                self.config = self.written_meanwhile.pop()
            if body[0] != {"op": "test", "path": "/webhooks/0/clientConfig", "value": self.config}:
                raise ApiError(422, "Invalid", "PATCH x: the server rejected our request")
            self.config = body[1]["value"]
        else:
            self.secret = body
        return None


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The certificate chains that the server used."""
    chains: list[bytes] = []
    monkeypatch.setattr(rotation.certificates, "load", lambda _, chain, key: chains.append(chain))
    return chains


class Replicas:
    """An operator and a webhook with one API server."""

    def __init__(self, api: FakeApi) -> None:
        client: Any = api
        self.publisher = CertificatePublisher(SharedObjects(client, "operators"), ["localhost"])
        self.served = SecretCertificate(SharedObjects(client, "operators"), server_context())

    def refresh(self, now: datetime) -> None:
        asyncio.run(self.publisher.refresh(now))
        asyncio.run(self.served.refresh(now))


def test_a_renewed_certificate_is_trusted_before_it_is_served(loaded):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    both.refresh(NOW + timedelta(days=59))
    assert len(loaded) == 1
    before = api.bundle
    both.refresh(NOW + timedelta(days=61))
    assert len(loaded) == 1
    assert api.bundle.endswith(before)
    assert api.bundle != before
    both.refresh(NOW + timedelta(days=61))
    assert len(loaded) == 2


def test_a_certificate_that_is_not_published_yet_is_not_served(loaded):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    published, api.config = api.config, {}
    fresh = Replicas(api).served
    with pytest.raises(ApiError, match="does not trust it yet"):
        asyncio.run(fresh.refresh(NOW))
    asyncio.run(both.served.refresh(NOW))  # It continues with what it has.
    assert len(loaded) == 1
    api.config = published
    asyncio.run(fresh.refresh(NOW))
    assert len(loaded) == 2


def test_without_an_operator_there_is_no_certificate(loaded):
    with pytest.raises(ApiError, match="no certificate yet"):
        asyncio.run(Replicas(FakeApi()).served.refresh(NOW))


def other_config(number: int) -> dict[str, Any]:
    return {"service": {"name": "s", "namespace": "n", "port": number}}


def test_a_configuration_that_another_replica_changes_is_read_again(loaded):
    api = FakeApi()
    api.written_meanwhile = [other_config(444)]
    Replicas(api).refresh(NOW)
    assert api.config["service"]["port"] == 444
    assert len(path(api)) == 32
    assert api.bundle


def test_a_configuration_that_always_changes_is_an_error(loaded):
    api = FakeApi()
    api.written_meanwhile = [other_config(number) for number in range(100)]
    with pytest.raises(ApiError, match="rejected our request"):
        asyncio.run(Replicas(api).publisher.refresh(NOW))
    assert len(api.written_meanwhile) > 80


def test_the_webhook_writes_nothing(loaded):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    writes = api.writes
    for _ in range(3):
        asyncio.run(both.served.refresh(NOW + timedelta(days=89)))
    assert api.writes == writes


def path(api: FakeApi) -> str:
    """Return the last part of the path that the API server uses."""
    head, _, last = str(api.config["service"]["path"]).rpartition("/")
    assert head == "/inject"
    return last


@pytest.mark.parametrize("seconds", [0, 1, 599, 600, 601, 1000])
def test_a_path_is_accepted_before_and_after_the_api_server_uses_it(loaded, seconds):
    """The webhook's clock may differ, and API servers learn about a new path with a delay."""
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    old, accepted = path(api), both.served.paths
    asyncio.run(both.publisher.refresh(NOW + timedelta(seconds=seconds)))
    if seconds <= 600:
        assert path(api) in accepted
    assert (path(api) == old) == (seconds < 600)
    asyncio.run(both.served.refresh(NOW + timedelta(seconds=seconds)))
    assert old in both.served.paths
    assert path(api) in both.served.paths


def test_an_old_path_is_refused(loaded):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    old = path(api)
    both.refresh(NOW + timedelta(seconds=1200))
    assert old not in both.served.paths


def test_the_path_stays_accepted_while_no_operator_runs(loaded):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    asyncio.run(both.served.refresh(NOW + timedelta(days=7)))
    assert path(api) in both.served.paths


@pytest.mark.parametrize("configured", [None, "/inject", "/inject/", "/other/x"])
def test_a_path_without_a_last_part_is_not_accepted(loaded, configured):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    api.config["service"]["path"] = configured
    asyncio.run(both.served.refresh(NOW))
    assert len(both.served.paths) == 3
    assert "" not in both.served.paths


def test_a_certificate_of_an_earlier_release_gets_a_key(loaded):
    """Its Secret has none. The certificate stays, because earlier replicas still serve it."""
    api = FakeApi()
    Replicas(api).refresh(NOW)
    chain = api.secret["data"]["tls.crt"]
    del api.secret["data"]["path-key"]
    Replicas(api).refresh(NOW)
    assert api.secret["data"]["tls.crt"] == chain
    assert api.secret["data"]["path-key"]


def test_a_removed_bundle_is_restored(loaded):
    api = FakeApi()
    both = Replicas(api)
    both.refresh(NOW)
    before = api.config
    api.config = {"service": {"name": "s", "namespace": "n", "port": 443}}
    both.refresh(NOW)
    assert api.config == before


def test_a_conflict_with_another_replica_is_retried(loaded):
    api = FakeApi()
    api.conflicts = 1
    Replicas(api).refresh(NOW)
    assert len(loaded) == 1
    api = FakeApi()
    api.conflicts = 10
    with pytest.raises(ApiError):
        Replicas(api).refresh(NOW)


@pytest.mark.parametrize(
    "data", [{"tls.crt": "!"}, {"path-key": "!"}, {"path-key": "c2hvcnQ="}, None]
)
def test_a_broken_secret_is_replaced(loaded, data):
    api = FakeApi()
    api.secret = {"data": data, "metadata": {"labels": {"a": "b"}}}
    Replicas(api).refresh(NOW)
    assert set(api.secret["data"]) == {"tls.crt", "tls.key", "ca.crt", "path-key"}
    assert api.secret["metadata"] == {"labels": {"a": "b"}}
