"""A file that changes has another version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tensorflow as tf

from distributed_input.worker.store import file_versions
from distributed_input.worker.store.file_versions import are_old, versions


def test_each_change_of_a_file_is_another_version(tmp_path: Path) -> None:
    file, other = tmp_path / "data", tmp_path / "other"
    file.write_bytes(b"one")
    found = versions([str(file)])
    assert found is not None
    assert found == versions([str(file)])
    at = os.stat(file).st_mtime_ns
    seen = [found]
    file.write_bytes(b"three")
    seen.append(versions([str(file)]) or [])
    other.write_bytes(b"ONE")
    os.utime(other, ns=(at, at))  # equal but for the time of the inode
    other.replace(file)
    seen.append(versions([str(file)]) or [])
    file.unlink()
    seen.append(versions([str(file)]) or [])
    assert seen[-1] == [[str(file)]]
    assert len({repr(one) for one in seen}) == 4


def test_what_is_no_file_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    assert versions([str(file), str(tmp_path)]) is None
    for name in ("no\0name", "x" * 9999, str(file / "below")):
        assert versions([name]) is None, name
    assert versions([str(tmp_path / "pipe")]) is None
    monkeypatch.setattr(file_versions, "MOST_FILES", 1)
    assert versions([str(file)] * 2) is None


def test_a_name_is_that_of_the_file_that_tensorflow_reads(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"one")
    for name in (f"{file}/", f"{tmp_path}/absent/../data", f"/{file}"):
        assert tf.io.read_file(name) == b"one"
        assert [one[1:2] for one in versions([name]) or []] == [[3]], name
    assert versions([""]) == [[""]]


def test_files_of_other_file_systems_have_versions(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"one")
    names = [f"file://{file}", f"file://{tmp_path}/none"]
    assert [one[1:2] for one in versions(names) or []] == [[3], []]
    assert versions([f"file://{tmp_path}"]) is None
    assert versions(["unknown://data"]) is None


def test_a_young_file_may_change_without_another_version(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"one")
    found = versions([str(file), "absent"])
    assert found is not None
    assert not are_old(found)
    age = int(file_versions.MIN_AGE_SECONDS * 1e9)
    name, size, changed, inode = found[0]
    assert isinstance(changed, int)
    assert isinstance(inode, int)
    assert not are_old([[name, size, changed - age, inode]])
    assert are_old([[name, size, changed - age, inode - age], found[1]])
