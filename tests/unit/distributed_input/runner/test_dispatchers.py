"""The dispatchers of runs on this machine, by the files of the runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributed_input.runner.dispatchers import _of_run


def test_the_dispatchers_that_are_ready(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    for name in ("other", "train"):
        (tmp_path / "tokens" / name).write_text("secret")
    (tmp_path / "train-dispatcher.ready").write_text(json.dumps({"address": "127.0.0.1:4567"}))
    (found,) = _of_run(tmp_path)
    found.client.close()
    assert found.client._is_local, "its processes run on this machine"
    assert (found.name, found.address, found.reread) == ("train", "127.0.0.1:4567", None)


def test_a_run_that_ends_in_the_meantime_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It removes its folder after a look at it, before the next.
    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    assert list(_of_run(tmp_path)) == []
