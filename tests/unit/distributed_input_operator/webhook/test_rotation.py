"""Certificates that others keep, and trouble that is told once."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timezone
from pathlib import Path

import pytest

from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.webhook import rotation
from distributed_input_operator.webhook.certificates import make, server_context
from distributed_input_operator.webhook.rotation import Mounted, keep

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)


def mount(folder: Path) -> None:
    """What cert-manager mounts."""
    made = make(["localhost"], NOW)
    (folder / "tls.crt").write_bytes(made.chain)
    (folder / "tls.key").write_bytes(made.key)


def test_a_mounted_certificate_is_loaded_whenever_it_is_new(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(rotation.certificates, "load", lambda _, *pair: loaded.append(pair))
    mounted = Mounted(tmp_path, server_context())
    for _ in range(2):
        mount(tmp_path)
        assert asyncio.run(mounted.look(NOW))
        assert asyncio.run(mounted.look(NOW))
    assert len(set(loaded)) == len(loaded) == 2


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(OSError, match=r"tls\.crt"):
        asyncio.run(Mounted(tmp_path, server_context()).look(NOW))


@pytest.mark.parametrize(
    ("trouble", "remedy"),
    [
        (ApiError(403, "Forbidden", "PATCH x: forbidden"), "grant this with the chart's role"),
        (ApiError(404, "NotFound", "GET x: not found"), "install the webhook with the chart"),
        (FileNotFoundError("no tls.crt"), "mount a folder with tls.crt and tls.key"),
    ],
)
def test_trouble_is_told_once_with_its_remedy_and_goes(trouble, remedy, monkeypatch, caplog):
    monkeypatch.setattr(rotation, "_RETRY_SECONDS", 0.0)
    answers = [trouble, trouble, trouble]
    told = []

    async def look(_now: datetime) -> bool:
        if answers:
            raise answers.pop()
        return True

    async def scenario() -> None:
        serving = asyncio.Event()

        def heard(there: bool) -> None:
            told.append(there)
            serving.set()

        keeping = asyncio.create_task(keep(look, heard))
        await asyncio.wait_for(serving.wait(), 10)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    (record,) = caplog.records
    assert remedy in record.getMessage()
    assert told == [True]
