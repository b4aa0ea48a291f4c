"""The webhook's command line, and its HTTPS server."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import ssl
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest

from distributed_input.api import names
from distributed_input_operator.webhook import main as webhook
from distributed_input_operator.webhook.certificates import generate
from distributed_input_operator.webhook.main import main, parser, running


def flags(*given: str) -> argparse.Namespace:
    images = ("--sidecar-image", "sidecar:1", "--worker-image", "worker:1")
    return parser().parse_args([*images, *given])


@pytest.fixture
def port() -> int:
    """A port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launched(folder: Path, port: int) -> Any:
    listen = ("--webhook-listen", f"127.0.0.1:{port}", "--webhook-certificate", str(folder))
    api: Any = None  # not called
    return running(api, "operators", flags(*listen))


async def test_a_review_gets_a_response_over_https(tmp_path, port):
    certificate = generate(["localhost"], datetime.now(timezone.utc))
    (tmp_path / "tls.crt").write_bytes(certificate.chain)
    (tmp_path / "tls.key").write_bytes(certificate.key)
    trust = ssl.create_default_context(cadata=certificate.bundle.decode())
    pod: dict[str, Any] = {"metadata": {}, "spec": {}}
    review = {"request": {"uid": "7", "namespace": "ml", "object": pod}}
    async with launched(tmp_path, port) as (rotation, ready):
        await asyncio.wait_for(ready.wait(), 10)
        url = f"https://localhost:{port}{names.WEBHOOK_PATH}"
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{url}/other", json=review, ssl=trust) as refused:
                assert refused.status == 404
            async with client.post(url, json=review, ssl=trust) as response:
                body = await response.json()
        assert not rotation.done()
    assert body["kind"] == "AdmissionReview"
    assert body["response"] == {"uid": "7", "allowed": True}


async def test_without_a_certificate_the_webhook_is_not_ready(tmp_path, port):
    async with launched(tmp_path, port) as (rotation, ready):
        await asyncio.sleep(0)  # the rotation runs once
    await asyncio.sleep(0)  # the rotation is cancelled
    assert (ready.is_set(), rotation.done()) == (False, True)


@pytest.mark.parametrize("missing", ["sidecar", "worker"])
def test_without_an_image_the_process_ends_with_the_name_of_the_flag(missing, capsys, monkeypatch):
    for part in ("SIDECAR", "WORKER"):
        monkeypatch.delenv(f"DISTRIBUTED_INPUT_{part}_IMAGE", raising=False)
    other = {"sidecar": "worker", "worker": "sidecar"}[missing]
    assert main([f"--{other}-image", "some:1"]) == 2
    assert f"--{missing}-image is not set" in capsys.readouterr().err


def test_the_certificate_is_that_of_the_operator_by_default():
    args = parser().parse_args([])
    assert args.webhook_certificate is None
    assert args.webhook_secret == "distributed-input-operator-webhook"
    assert args.webhook_listen == ":9443"


async def test_a_rotation_that_has_stopped_restarts_the_process(monkeypatch):
    rotation, stopping = asyncio.create_task(asyncio.sleep(0)), asyncio.Event()
    found: list[str] = []

    @contextlib.asynccontextmanager
    async def launched(*_: Any) -> Any:
        yield rotation, asyncio.Event()

    async def serve(_host: str, _port: int, failure: Any, _ready: Any) -> Any:
        found.append(failure())
        await rotation
        found.append(failure())
        stopping.set()
        return AsyncMock()

    monkeypatch.setattr(webhook.process, "load_credentials", AsyncMock())
    monkeypatch.setattr(webhook.process, "stop_event", lambda: stopping)
    monkeypatch.setattr(webhook.process, "own_namespace", lambda: "operators")
    monkeypatch.setattr(webhook.health, "serve", serve)
    monkeypatch.setattr(webhook, "running", launched)
    await webhook._run(flags())
    assert found == ["", "the webhook's certificate rotation has stopped"]
