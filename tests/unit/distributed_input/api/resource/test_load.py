"""Loading of files: relative folders, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input.api.resource.input import input_config
from distributed_input.api.resource.load import load, load_all
from distributed_input.api.resource.problems import ResourceError
from tests.unit.distributed_input.api.resource.manifests import manifest

FIELD = "spec.dataset.entryPoint.source.path"
_SOURCE = "source: {type: Path, path: %s}"
WITH_CODE = f"dataset: {{type: EntryPoint, entryPoint: {{function: 'a:b', {_SOURCE}}}}}"


def write(folder: Path, text: str) -> Path:
    path = folder / "input.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", [".", "code/../code", "code"])
def test_a_source_folder_is_relative_to_the_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "code").mkdir()
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path, manifest(WITH_CODE % path))
    monkeypatch.chdir(tmp_path / "elsewhere")
    resource = load("../input.yaml")
    expected = str((tmp_path / path).resolve())
    assert resource.spec.dataset.path == expected
    assert input_config(resource).to_json()["dataset"]["source"] == {"path": expected}


def test_an_absolute_source_folder_does_not_change(tmp_path: Path):
    (tmp_path / "code").mkdir()
    path = write(tmp_path, manifest(WITH_CODE % (tmp_path / "code")))
    assert load(path).spec.dataset.path == str(tmp_path / "code")


def test_a_source_folder_that_does_not_exist_is_an_error(tmp_path: Path):
    path = write(tmp_path, manifest(WITH_CODE % "nowhere"))
    message = rf"input.yaml:5: {FIELD}: folder {tmp_path}/nowhere does not exist"
    with pytest.raises(ResourceError, match=message):
        load(path)


def test_a_source_that_is_a_file_is_an_error(tmp_path: Path):
    (tmp_path / "code.py").touch()
    path = write(tmp_path, manifest(WITH_CODE % "code.py"))
    message = rf"input.yaml:5: {FIELD}: {tmp_path}/code.py is a file: set the fold"
    with pytest.raises(ResourceError, match=message):
        load(path)


def test_load_all_returns_every_input(tmp_path: Path):
    path = write(tmp_path, f"{manifest(name='train')}---\n{manifest(name='eval')}")
    assert [resource.metadata.name for resource in load_all(path)] == ["train", "eval"]


def test_load_refuses_a_file_with_two_inputs(tmp_path: Path):
    path = write(tmp_path, f"{manifest(name='train')}---\n{manifest(name='eval')}")
    with pytest.raises(ResourceError, match=r"has 2 DistributedInputs \(train, eval\)"):
        load(path)


def test_the_error_for_an_unreadable_file_has_its_name(tmp_path: Path):
    with pytest.raises(ResourceError, match=r"none.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ResourceError, match=r"cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(ResourceError, match=r"latin.yaml: is not UTF-8 text"):
        load(tmp_path / "latin.yaml")
