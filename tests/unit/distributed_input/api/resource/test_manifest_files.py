"""Files: where relative folders are taken from, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input.api.resource.load import (
    ResourceError,
    data_plane_config,
    load,
    load_all,
    loads,
)
from tests.unit.distributed_input.api.resource.manifests import manifest

WITH_CODE = "dataset: {entryPoint: 'a:b', source: {path: %s}}"


def written(folder: Path, text: str) -> Path:
    path = folder / "input.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", [".", "code/../code", "code"])
def test_a_source_folder_is_relative_to_the_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "code").mkdir()
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path, manifest(WITH_CODE % path))
    monkeypatch.chdir(tmp_path / "elsewhere")
    resource = load("../input.yaml")
    wanted = str((tmp_path / path).resolve())
    assert resource.spec.dataset.source.path == wanted
    assert data_plane_config(resource)["dataset"]["source"] == {"path": wanted}


def test_an_absolute_source_folder_stays(tmp_path: Path):
    (tmp_path / "code").mkdir()
    path = written(tmp_path, manifest(WITH_CODE % (tmp_path / "code")))
    assert load(path).spec.dataset.source.path == str(tmp_path / "code")


def test_a_source_folder_that_is_not_there_is_an_error(tmp_path: Path):
    path = written(tmp_path, manifest(WITH_CODE % "nowhere"))
    with pytest.raises(ResourceError, match=r"input.yaml:5: spec.dataset.source.path: no folder /"):
        load(path)


def test_without_a_file_a_source_folder_stays_as_it_is():
    assert loads(manifest(WITH_CODE % "nowhere")).spec.dataset.source.path == "nowhere"


def test_load_all_gives_every_input(tmp_path: Path):
    path = written(tmp_path, f"{manifest(name='train')}---\n{manifest(name='eval')}")
    assert [resource.metadata.name for resource in load_all(path)] == ["train", "eval"]


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    with pytest.raises(ResourceError, match=r"none.yaml: cannot be read: No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ResourceError, match=r"cannot be read: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(ResourceError, match=r"latin.yaml: is no UTF-8 text"):
        load(tmp_path / "latin.yaml")
