"""`distributed-input validate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from distributed_input import cli

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  partitions: 8
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "input.yaml"
    file.write_text(INPUT)
    return file


def test_a_valid_file_is_status_0(file, capsys):
    assert cli.main(["validate", str(file), "--trainers", "4"]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: train is valid: ")


def test_warnings_follow_the_valid_input(file, capsys, called):
    file.write_text(INPUT.partition("spec:")[0])
    valid, warning = called(["validate", str(file), "--trainers", "3"]).out.splitlines()
    assert valid.startswith(f"{file}: train is valid: ")
    assert warning.startswith(f"{file}: warning: train: whether 3 trainers can share it is unknown")
    assert len(json_of(file, capsys, "--trainers", "3")["inputs"][0]["warnings"]) == 1


def test_problems_are_status_2_with_file_and_line(file, capsys, called):
    assert cli.main(["validate", str(file), "--trainers", "3"]) == 2
    assert capsys.readouterr().out.startswith(f"{file}:5: spec.partitions: 3 trainers cannot")
    file.write_text(INPUT + "  seed: x\n  epoch: 1\n")
    lines = called(["validate", str(file)], 2).out.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{file}:6", "spec.seed"],
        [f"{file}:7", "spec.epoch"],
    ]


def json_of(file: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    status = cli.main(["validate", str(file), "-o", "json", *flags])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["file"], found["valid"]) == (str(file), status == 0)
    return found


def test_the_json_of_a_valid_file_has_what_was_found(file, capsys):
    found = json_of(file, capsys)
    assert found["valid"]
    assert found["problems"] == []
    assert found["inputs"] == [
        {
            "name": "train",
            "code": "the trainer sends the dataset",
            "partitions": 8,
            "trainers": [1, 2, 4, 8],
            "trainers_text": "8 partitions for 1, 2, 4 or 8 trainers",
            "warnings": [],
        }
    ]


def test_the_json_has_line_field_and_message_of_each_problem(file, capsys):
    (problem,) = json_of(file, capsys, "--trainers", "3")["problems"]
    assert (problem["line"], problem["field"]) == (5, "spec.partitions")
    assert problem["message"].startswith("3 trainers cannot")
    file.write_text(INPUT + "  seed: x\n  epoch: 1\n")
    found = json_of(file, capsys)
    places = [(one["line"], one["field"]) for one in found["problems"]]
    assert places == [(6, "spec.seed"), (7, "spec.epoch")]
    assert found["inputs"] == []
    file.unlink()
    (problem,) = json_of(file, capsys)["problems"]
    assert (problem["line"], problem["field"]) == (None, None)
    assert problem["message"].endswith("cannot be read: No such file or directory")


def test_the_json_without_the_package_of_the_models_has_the_remedy(file, capsys, monkeypatch):
    for name in ("load", "problems"):
        monkeypatch.setitem(sys.modules, f"distributed_input.api.resource.{name}", None)
    (problem,) = json_of(file, capsys)["problems"]
    assert "pip install" in problem["message"]
