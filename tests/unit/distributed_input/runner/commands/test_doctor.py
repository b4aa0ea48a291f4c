"""The command that checks the installation."""

from __future__ import annotations

import json

import pytest

from distributed_input import cli
from distributed_input.runner.commands import doctor
from distributed_input.runner.installation import Check, Result


@pytest.mark.parametrize(("result", "status"), [("ok", 0), ("warning", 0), ("failed", 1)])
def test_the_exit_status(result, status, monkeypatch, capsys):
    found = [Check("sockets", Result(result), "found")]
    monkeypatch.setattr(doctor, "check_all", lambda env, namespace: iter(found))
    assert cli.main(["doctor"]) == status
    assert capsys.readouterr().out.split() == [result, "sockets", "found"]
    assert cli.main(["doctor", "-o", "json"]) == status
    values = json.loads(capsys.readouterr().out)
    assert values == [{"name": "sockets", "result": result, "text": "found"}]


def test_the_namespace_is_that_of_the_flag(monkeypatch):
    asked: list[str | None] = []

    def check_all(env: object, namespace: str | None) -> list[Check]:
        asked.append(namespace)
        return []

    monkeypatch.setattr(doctor, "check_all", check_all)
    for flags in ([], ["-n", "team"], ["--namespace", "team"]):
        assert cli.main(["doctor", *flags]) == 0
    assert asked == [None, "team", "team"]


def test_this_machine_passes(capsys):
    cli.main(["doctor"])
    lines = capsys.readouterr().out
    for name in ("python", "packages", "tensorflow", "run", "folder", "sockets"):
        assert f"ok       {name} " in lines
