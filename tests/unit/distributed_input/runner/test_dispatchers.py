"""The dispatchers of runs on this machine, by the files of the runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import dispatchers, folders
from distributed_input.runner.dispatchers import _of_run, hint_at_local_run
from distributed_input.runtime.credentials import Credentials


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


def test_the_end_of_a_run_is_no_problem_of_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard outlives the run, and its file: it does not warn that the file is missing."""
    given: list[tuple[str | None, object]] = []

    def from_args(file: str | None, env: object) -> Credentials:
        given.append((file, env))
        return Credentials()

    monkeypatch.setattr(dispatchers.Credentials, "from_args", from_args)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "train").write_text("secret")
    (tmp_path / "dispatcher.ready").write_text(json.dumps({"address": "127.0.0.1:4567"}))
    (found,) = _of_run(tmp_path)
    found.client.close()
    assert given == [(None, {"DISTRIBUTED_INPUT_TOKEN": "secret"})]


@pytest.mark.parametrize(
    ("name", "namespace", "hinted"),
    [("train", None, True), ("train", "team", False), ("other", None, False)],
)
def test_an_error_of_the_cluster_mentions_a_run_on_this_machine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    namespace: str | None,
    hinted: bool,
) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "train").write_text("secret")
    monkeypatch.setattr(folders, "live", lambda _: [tmp_path])
    with (
        pytest.raises(ConfigError, match="kubectl is not installed") as caught,
        hint_at_local_run(name, namespace, {}),
    ):
        raise ConfigError("kubectl is not installed")
    assert ("omit NAME" in str(caught.value)) == hinted
