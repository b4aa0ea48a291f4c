"""A folder keeps what costs most to compute again, for its size, within its limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.rows import store_folder
from distributed_input.rows.store_folder import StoreFolder
from distributed_input.rows.stored_split import SplitFile
from tests.unit.distributed_input.rows.test_stored_split import ABOUT
from tests.unit.distributed_input.worker.streams.blockcases import block_of


def publish(folder: StoreFolder, name: str, seconds: float = 1.0) -> SplitFile:
    file = folder.create("split")
    file.write([block_of(0, 100)])
    file.finish(ABOUT)
    folder.count(file.size)
    folder.publish(name, file.path, file.size, seconds)
    return file


def names(folder: StoreFolder) -> list[str]:
    return sorted(entry.path.name.partition(".")[0] for entry in folder.entries())


def room_for(splits: int, path: Path) -> StoreFolder:
    size = publish(StoreFolder(path / "measured", 1 << 20), "a").size
    return StoreFolder(path / "store", splits * size)


def test_a_split_is_visible_when_it_is_published(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path / "below" / "store", 1 << 20)
    assert folder.open("a") is None
    assert names(folder) == []
    file = folder.create("split")
    assert folder.open("a") is None
    file.finish(ABOUT)
    folder.publish("a", file.path, file.size, 1.0)
    stored = folder.open("a")
    assert stored is not None
    assert stored.about == ABOUT._replace(blocks=[])
    stored.close()
    folder.remove("a")
    folder.remove("a")
    assert folder.open("a") is None
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_of_equal_costs_the_one_that_was_not_used_is_removed(tmp_path: Path) -> None:
    folder = room_for(3, tmp_path)
    size = max(publish(folder, name).size for name in "abc")
    time.sleep(0.02)  # the times of files have a resolution
    folder.use("a", size, 1.0)
    publish(folder, "d")
    assert names(folder) == ["a", "c", "d"]


def test_the_cheapest_is_removed_first_and_the_dearest_not_for_ever(tmp_path: Path) -> None:
    folder = room_for(3, tmp_path)
    for name, seconds in (("a", 2.5), ("b", 1.0), ("c", 2.0)):
        publish(folder, name, seconds)
    publish(folder, "d")
    assert names(folder) == ["a", "c", "d"]
    for number in range(9):
        publish(folder, f"e{number}")
    assert "a" not in names(folder)
    assert len(names(folder)) == 3


def test_a_file_without_writer_is_removed(tmp_path: Path) -> None:
    folder = room_for(9, tmp_path)
    files = [folder.create("split") for _ in range(2)]
    (written, dead) = (file.path for file in files)
    for file in files:
        file.close()
    os.utime(dead, (0, 0))
    publish(folder, "a")
    assert written.exists()
    assert not dead.exists()


def test_the_folder_is_read_after_a_part_of_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[int] = []

    def entries(_: StoreFolder) -> Iterator[tuple[Path, os.stat_result]]:
        scans.append(1)
        return iter(())

    monkeypatch.setattr(StoreFolder, "entries", entries)
    folder = room_for(2560, tmp_path)
    scans.clear()
    for number in range(30):
        publish(folder, str(number))
    assert len(scans) == 3


def publish_folder(folder: StoreFolder, name: str, nbytes: int, seconds: float) -> None:
    path = folder.new_path("boundary")
    path.mkdir(parents=True)
    (path / "rows.data").write_bytes(bytes(nbytes))
    file = SplitFile(path / "about")
    file.finish(ABOUT._replace(data=[("rows.data", nbytes, "")]))
    folder.count(nbytes + file.size)
    folder.publish(name, path, nbytes + file.size, seconds)


def test_a_folder_with_the_files_of_a_boundary_counts_and_is_removed(tmp_path: Path) -> None:
    folder = StoreFolder(tmp_path, 100_000)
    publish_folder(folder, "a", 40_000, 1.0)
    publish_folder(folder, "b", 40_000, 2.0)
    with pytest.raises(OSError, match="not empty"):
        publish_folder(folder, "a", 1, 1.0)
    stored = folder.open("a")
    assert stored is not None
    assert stored.size > 40_000
    publish_folder(folder, "c", 40_000, 3.0)
    assert [name for name in names(folder) if name in "abc"] == ["b", "c"]
    assert stored.about.dataset == ABOUT.dataset  # open files stay readable
    stored.check_data(0)
    stored.close()
    folder.remove("b")
    assert folder.open("b") is None


def test_a_folder_that_is_written_to_seldom_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_folder, "_PART_SECONDS", -60.0)
    folder = StoreFolder(tmp_path, 1 << 20)
    paths = [folder.new_path("boundary") for _ in range(2)]
    for path in paths:
        path.mkdir()
        os.utime(path, (0, 0))
    folder.live.add(paths[0])
    folder.count(1 << 20)
    assert [path.exists() for path in paths] == [True, False]
    assert paths[0].stat().st_mtime > 0, "other processes see that it is in use"
