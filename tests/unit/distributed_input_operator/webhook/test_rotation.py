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
    ManagedCertificate,
    MountedCertificate,
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
        self.bundle = b""
        self.conflicts = 0

    async def get(self, *_: Any) -> Any:
        return self.secret

    async def create(self, secret: Any) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "AlreadyExists", "POST x: exists")
        self.secret = secret

    async def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        if method == "GET":
            config = {"caBundle": base64.b64encode(self.bundle).decode()}
            return {"webhooks": [{"name": "inject", "clientConfig": config}]}
        if method == "PATCH":
            self.bundle = base64.b64decode(body[1]["value"])
        else:
            self.secret = body
        return None


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The certificate chains that the server used."""
    chains: list[bytes] = []
    monkeypatch.setattr(rotation.certificates, "load", lambda _, chain, key: chains.append(chain))
    return chains


def managed(api: FakeApi) -> ManagedCertificate:
    return ManagedCertificate(api, "operators", ["localhost"], server_context())  # type: ignore[arg-type]


def test_a_renewed_certificate_is_trusted_before_it_is_served(loaded):
    api = FakeApi()
    certificate = managed(api)
    asyncio.run(certificate.refresh(NOW))
    asyncio.run(certificate.refresh(NOW + timedelta(days=59)))
    assert len(loaded) == 1
    before = api.bundle
    asyncio.run(certificate.refresh(NOW + timedelta(days=61)))
    assert len(loaded) == 1
    assert api.bundle.endswith(before)
    assert api.bundle != before
    asyncio.run(certificate.refresh(NOW + timedelta(days=61)))
    assert len(loaded) == 2


def test_a_removed_bundle_is_restored(loaded):
    api = FakeApi()
    certificate = managed(api)
    asyncio.run(certificate.refresh(NOW))
    bundle, api.bundle = api.bundle, b""
    asyncio.run(certificate.refresh(NOW))
    assert api.bundle == bundle


def test_a_conflict_with_another_replica_is_retried(loaded):
    api = FakeApi()
    api.conflicts = 1
    asyncio.run(managed(api).refresh(NOW))
    assert len(loaded) == 1
    api = FakeApi()
    api.conflicts = 10
    with pytest.raises(ApiError):
        asyncio.run(managed(api).refresh(NOW))


def test_a_broken_secret_is_replaced(loaded):
    api = FakeApi()
    api.secret = {"data": {"tls.crt": "!"}, "metadata": {"labels": {"a": "b"}}}
    asyncio.run(managed(api).refresh(NOW))
    assert set(api.secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert api.secret["metadata"] == {"labels": {"a": "b"}}
