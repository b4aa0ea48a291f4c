"""The webhook's command line."""

from __future__ import annotations

import asyncio

import pytest

from distributed_input_operator.webhook.main import _trouble, main, parser


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


async def test_a_rotation_that_has_stopped_restarts_the_process():
    rotation = asyncio.create_task(asyncio.sleep(0))
    before = _trouble(rotation)
    await rotation
    after = _trouble(rotation)
    assert before == ""
    assert "rotation has stopped" in after
