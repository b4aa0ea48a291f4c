"""The dispatchers of runs on this machine, by the files of the runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.link.credentials import Credentials
from distributed_input.runner import dispatchers, folders
from distributed_input.runner.command_line import command
from distributed_input.runner.dispatchers import FoundDispatcher, Selection, _of_run, printed
from distributed_input.runner.display.status_client import StatusClient
from distributed_input.runner.folders import RunFolders


def test_the_dispatchers_that_are_ready(tmp_path):
    (tmp_path / "tokens").mkdir()
    for name in ("other", "train"):
        (tmp_path / "tokens" / name).write_text("secret")
    (tmp_path / "train-dispatcher.ready").write_text(json.dumps({"address": "127.0.0.1:4567"}))
    (found,) = _of_run(RunFolders("r", tmp_path, tmp_path))
    found.client.close()
    assert found.client._is_local, "its processes run on this machine"
    assert (found.name, found.address) == ("train", "127.0.0.1:4567")


def test_a_run_that_ends_in_the_meantime_has_none(tmp_path, monkeypatch):
    # It removes its folder after a look at it, before the next.
    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    assert list(_of_run(RunFolders("r", tmp_path, tmp_path))) == []


def test_the_end_of_a_run_is_no_problem_of_its_token(tmp_path, monkeypatch):
    """The dashboard outlives the run, and its file: it does not warn that the file is missing."""
    given: list[tuple[str | None, object]] = []

    def from_args(file: str | None, env: object) -> Credentials:
        given.append((file, env))
        return Credentials()

    monkeypatch.setattr(dispatchers.Credentials, "from_args", from_args)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "train").write_text("secret")
    (tmp_path / "dispatcher.ready").write_text(json.dumps({"address": "127.0.0.1:4567"}))
    (found,) = _of_run(RunFolders("r", tmp_path, tmp_path))
    found.client.close()
    assert given == [(None, {"DISTRIBUTED_INPUT_TOKEN": "secret"})]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Start two runs with an input `train`; the second also has `eval`. Return the environment."""
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with folders.create(None, env) as first, folders.create(None, env) as second:
        for run, names in ((first, ["train"]), (second, ["train", "eval"])):
            (run.path / "tokens").mkdir()
            for name in names:
                (run.path / "tokens" / name).write_text("secret")
                ready = json.dumps({"address": f"127.0.0.1:{len(names)}"})
                (run.path / f"{name}-dispatcher.ready").write_text(ready)
        yield env


def found(env: dict[str, str], *flags: str) -> list[FoundDispatcher]:
    """Return what the flags of a command select."""
    selected: list[Selection] = []

    @command("")
    @dispatchers.flags
    def one(selection: Selection) -> int:
        selected.append(selection)
        return 0

    one.main(flags, standalone_mode=False)
    with dispatchers.opened(selected[0], env) as opened:
        return opened


def test_inputs_of_the_same_name_differ_in_process_and_folder(runs):
    assert sorted(one.name for one in found(runs)) == ["eval", "train", "train"]
    place = f"pid {os.getpid()}, {os.getcwd()}"
    assert {one.title for one in found(runs, "train")} == {f"train ({place})"}


def test_a_name_selects_local_runs_before_the_cluster(runs, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert [one.name for one in found(runs, "train")] == ["train", "train"]
    assert [one.name for one in found(runs, "eval")] == ["eval"]
    for flags in (["other"], ["train", "-n", "team"]):
        with pytest.raises(ConfigError, match="kubectl is not installed"):
            found(runs, *flags)


def test_each_input_is_an_object_or_a_title():
    client = cast(StatusClient, None)  # it is not called
    first, second = FoundDispatcher("a", client, place="pid 7, /home"), FoundDispatcher("", client)
    found = [(first, {"n": 1}, "one\n"), (second, {"n": 2}, "two\n")]
    values = [json.loads(line) for line in printed(found, "json").splitlines()]
    assert [(one["input"], one["run"], one["n"]) for one in values] == [
        ("a", "pid 7, /home", 1),
        (None, None, 2),
    ]
    assert printed(found, "text") == "a (pid 7, /home):\none\n\ninput:\ntwo\n"
    assert printed(found[:1], "text") == "one\n"
