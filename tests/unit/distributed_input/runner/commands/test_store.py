"""`distributed-input store` lists, verifies and removes what workers stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input import cli
from distributed_input.rows.store_folder import StoreFolder
from tests.unit.distributed_input.rows.test_store_folder import publish_folder
from tests.unit.distributed_input.rows.test_stored_split import ABOUT, write

LINE = "data:rows: 2 splits, 24 rows, 0.0 MB, 1.0 s of CPU\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, dataset in (("a", "data:rows"), ("b", "data:rows"), ("c", "other:rows")):
        write(tmp_path / f"{name}.rows", ABOUT._replace(dataset=dataset))
    StoreFolder(tmp_path, 1 << 20).create("split").close()
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(["store", *arguments])
    return status, capsys.readouterr().out


def test_splits_are_listed_by_dataset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = LINE.replace("data", "other").replace("2 ", "1 ").replace("24", "12")
    assert run(capsys, "ls", str(folder)) == (0, LINE + other.replace("1.0 s", "0.5 s"))
    assert run(capsys, "verify", str(folder), "--dataset", "data:rows") == (0, LINE)


def test_damaged_splits_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, at in (("a", 0), ("b", -1)):
        data = bytearray((folder / f"{name}.rows").read_bytes())
        data[at] ^= 1
        (folder / f"{name}.rows").write_bytes(data)
    status, text = run(capsys, "verify", str(folder))
    assert status == 1
    assert text.startswith(
        "a.rows: the block of row 0 is damaged\nb.rows: its description is damaged\n"
    )
    assert run(capsys, "ls", str(folder))[0] == 1  # it cannot list one


def test_splits_are_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "rm", str(folder), "--dataset", "data:rows")
    assert found == (0, LINE.replace("2 splits", "removed 2 splits"))
    assert sorted(path.name for path in folder.glob("*.rows")) == ["c.rows"]
    run(capsys, "rm", str(folder))
    assert run(capsys, "ls", str(folder)) == (0, f"no splits in {folder}\n")


def test_a_damaged_file_of_a_boundary_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish_folder(StoreFolder(tmp_path, 1 << 20), "a", 3, 1.0)  # with another digest
    assert run(capsys, "ls", str(tmp_path))[0] == 0
    assert run(capsys, "verify", str(tmp_path))[1].startswith("a.rows: rows.data is damaged\n")
    run(capsys, "rm", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(["store", "ls"]) == 2
    folder = tmp_path / "distributed-input" / "store"
    assert f"{folder}: is not a folder" in capsys.readouterr().err
    folder.mkdir(parents=True)
    assert run(capsys, "ls") == (0, f"no splits in {folder}\n")
