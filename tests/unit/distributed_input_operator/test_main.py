"""The operator's process."""

from __future__ import annotations

import argparse

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
