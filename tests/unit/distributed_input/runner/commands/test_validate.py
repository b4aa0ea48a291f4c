"""`distributed-input validate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input.runner.commands import validate

INPUT = """\
apiVersion: distributed-input.dev/v1alpha1
kind: DistributedInput
metadata: {name: train}
spec:
  partitions: 8
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "input.yaml"
    file.write_text(INPUT)
    return file


def test_a_valid_file_is_status_0(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate.main([str(file), "--trainers", "4"]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: train is valid: ")


def test_problems_are_status_2_with_file_and_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate.main([str(file), "--trainers", "3"]) == 2
    assert capsys.readouterr().out.startswith(f"{file}:5: spec.partitions: 3 trainers cannot")
    file.write_text(INPUT + "  seed: x\n  epoch: 1\n")
    assert validate.main([str(file)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{file}:6", "spec.seed"],
        [f"{file}:7", "spec.epoch"],
    ]


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_the_number_of_trainers_is_positive(
    file: Path, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        validate.main([str(file), f"--trainers={number}"])
    assert "is not a whole number of 1 or more" in capsys.readouterr().err
