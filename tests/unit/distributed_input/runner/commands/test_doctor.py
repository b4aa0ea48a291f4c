"""The command that checks the installation."""

from __future__ import annotations

import json

import pytest

from distributed_input.runner.commands import doctor
from distributed_input.runner.installation import Check, Result


@pytest.mark.parametrize(("result", "status"), [("ok", 0), ("warning", 0), ("failed", 1)])
def test_the_exit_status(
    result: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [Check("ports", Result(result), "found")]
    monkeypatch.setattr(doctor, "check_all", lambda env: iter(found))
    assert doctor.main([]) == status
    assert capsys.readouterr().out.split() == [result, "ports", "found"]
    assert doctor.main(["-o", "json"]) == status
    values = json.loads(capsys.readouterr().out)
    assert values == [{"name": "ports", "result": result, "text": "found"}]


def test_this_machine_passes(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.main([])
    lines = capsys.readouterr().out
    for name in ("python", "packages", "tensorflow", "run", "ports", "folder"):
        assert f"ok       {name} " in lines
