"""Checks of a resource file with the code of its entry points."""

from __future__ import annotations

import importlib.util
import subprocess
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import validation
from distributed_input.runner.validation import validate

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: NAME}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "validated_code:FUNCTION", source: {type: Path, path: FOLDER}}
  partitions: 8
"""
CODE = """
import numpy as np

print("printed by the module")
def dataset_fn(context):
    print("printed by the function")
    return [np.zeros(2)]
"""


@pytest.fixture
def file(tmp_path):
    """Return a file with one input. Its code is valid."""
    (tmp_path / "validated_code.py").write_text(CODE)
    file = tmp_path / "input.yaml"
    file.write_text(written("train"))
    return file


def written(name: str, function: str = "dataset_fn", folder: str = ".") -> str:
    return INPUT.replace("NAME", name).replace("FUNCTION", function).replace("FOLDER", folder)


def without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


@pytest.mark.slow
def test_the_code_is_imported_as_in_a_worker(file):
    pytest.importorskip("tensorflow")
    assert [str(one) for one in validate(file, trainers=4)] == [
        "train is valid: validated_code:dataset_fn was imported and called; "
        "8 partitions for 1, 2, 4 or 8 trainers"
    ]
    file.write_text(f"{written('train', 'dataset')}---\n{written('eval')}")
    with pytest.raises(ConfigError) as caught:
        validate(file, trainers=3)
    problems = [line.removeprefix(f"{file}:") for line in str(caught.value).splitlines()]
    assert [problem.partition(". ")[0] for problem in problems] == [
        "8: spec.partitions: 3 trainers cannot divide 8 partitions",
        "7: spec.dataset.entryPoint.function: module validated_code has no 'dataset'; it has "
        "dataset_fn",
        "17: spec.partitions: 3 trainers cannot divide 8 partitions",
    ]


def test_a_module_that_ends_the_process_is_a_problem(file, monkeypatch):
    monkeypatch.setattr(validation, "_CHECK", "no_such_module")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    with pytest.raises(ConfigError, match=r"importing \S+ ended with status 1: .*no_such_module"):
        validate(file)


def replace_results(monkeypatch: pytest.MonkeyPatch, *results: dict[str, Any]) -> None:
    """Replace the results of the process that imports and calls the entry point."""
    monkeypatch.setattr(validation, "_results", lambda *_: results)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)


def test_the_batch_size_in_the_code_limits_the_trainers(file, monkeypatch):
    file.write_text(written("train").replace("  partitions: 8\n", ""))
    found = {"partitions": 8, "rows": 64, "parallel": False, "warnings": ["shard it"]}
    replace_results(monkeypatch, {}, found)
    (valid,) = validate(file, trainers=4)
    assert (valid.partitions, valid.trainers) == (8, [1, 2, 4, 8])
    assert valid.warnings == ("shard it",)
    with pytest.raises(ConfigError, match=r"3 trainers cannot divide 8 partitions. Use 1, 2, 4 or"):
        validate(file, trainers=3)
    replace_results(monkeypatch, {}, found | {"parallel": True, "rows": 6})
    assert validate(file, trainers=3)[0].trainers is None


def test_what_is_unknown_is_a_warning(file, monkeypatch):
    file.write_text(written("train").replace("  partitions: 8\n", ""))
    replace_results(monkeypatch, {}, {"unknown": "no such\nfolder"})
    (valid,) = validate(file)
    assert valid.warnings == ("the dataset was not checked: no such folder",)
    (valid,) = validate(file, trainers=3)
    assert valid.warnings[1].startswith("whether 3 trainers can share it is unknown: it depends")
    (valid,) = validate(file, trainers=1)
    assert len(valid.warnings) == 1


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "importing validated_code:dataset_fn takes more than 120 s"),
        (b"{}", "importing validated_code:dataset_fn takes more than 120 s"),
        (b"{}\n", ""),
    ],
)
def test_a_call_that_takes_very_long_is_a_warning(file, monkeypatch, output, message):
    def run(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("check", 120.0, output)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    if message:
        with pytest.raises(ConfigError, match=message):
            validate(file)
    else:
        (warning,) = validate(file)[0].warnings
        assert "calling validated_code:dataset_fn takes more than 120 s" in warning


def test_without_tensorflow_or_code_the_entry_point_is_not_imported(file, monkeypatch):
    without_tensorflow(monkeypatch)
    (line,) = map(str, validate(file))
    assert "was not imported: TensorFlow is not installed here" in line
    file.write_text(written("train").replace("type: Path, path: .", "type: Image"))
    (line,) = map(str, validate(file))
    assert (
        "was not imported, because the type of spec.dataset.entryPoint.source is not Path" in line
    )
    file.write_text(written("train", folder="nowhere"))
    with pytest.raises(
        ConfigError, match=r"^\S*:7: spec.dataset.entryPoint.source.path: folder \S+ does not"
    ):
        validate(file)


def test_a_dataset_of_the_trainer_has_no_code(tmp_path):
    file = tmp_path / "input.yaml"
    file.write_text(INPUT.partition("spec:")[0].replace("NAME", "train"))
    (found,) = validate(file)
    assert (found.partitions, found.trainers) == (None, None)
    assert str(found).startswith("train is valid: the trainer sends the dataset; 1 trainer can ")
