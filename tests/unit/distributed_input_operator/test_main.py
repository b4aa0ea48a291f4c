"""The operator's process."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import pytest

from distributed_input_operator import main


def test_the_operator_raises_its_limit_of_open_files_before_it_works(monkeypatch):
    """Its channels to dispatchers are limited by it."""
    steps: list[str] = []

    async def run(_: argparse.Namespace) -> int:
        steps.append("run")
        return 0

    monkeypatch.setattr(main, "_run", run)
    monkeypatch.setattr(main.process, "set_up_logging", lambda _: None)
    monkeypatch.setattr(main.process, "raise_file_limit", lambda: steps.append("raise"))
    assert main.main(["--worker-image", "w", "--sidecar-image", "s"]) == 0
    assert steps == ["raise", "run"]


def test_the_lease_has_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing delays its renewal, also if all other connections are in use."""
    used: dict[str, Any] = {}

    class Lock:
        def __init__(self, api: Any, *_: Any) -> None:
            used["lease"] = api._client

        async def release(self) -> None:
            pass

    async def nothing(*_: Any) -> Any:
        return Page()

    class Page:
        cleanup = nothing

    async def lead(_: Lock, work: Any) -> None:
        await work()

    async def work(_: argparse.Namespace, api: Any, *__: Any) -> None:
        used["work"] = api._client

    monkeypatch.setattr(main.process, "load_credentials", nothing)
    monkeypatch.setattr(main.health, "serve", nothing)
    monkeypatch.setattr(main.leader, "LeaseLock", Lock)
    monkeypatch.setattr(main.leader, "run_as_leader", lead)
    monkeypatch.setattr(main, "_work", work)
    args = main._parser().parse_args(["--worker-image", "w", "--sidecar-image", "s"])
    assert asyncio.run(main._run(args)) == 0
    assert used["lease"] is not used["work"]
