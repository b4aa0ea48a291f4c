"""A file that changes has another version."""

from __future__ import annotations

import os
import types
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


def test_a_name_with_the_scheme_file_is_that_of_a_local_file(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"one")
    (found,) = versions([str(file)]) or []
    for name in (f"file://{file}", f"file://host{file}"):
        assert tf.io.read_file(name) == b"one"
        assert versions([name]) == [[name, *found[1:]]]
    assert versions([f"file://{tmp_path}/none"]) == [[f"file://{tmp_path}/none"]]
    for other in (f"file://{tmp_path}", "file://", "unknown://data"):
        assert versions([other]) is None, other


def test_files_of_other_file_systems_have_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.io.gfile.GFile("ram://version", "w") as file:
        file.write("one")
    assert versions(["ram://version"]) is None  # it has no time
    for time, expected in ((1, [["ram://version", 3, 1]]), (0, None), (-1, None)):
        found = types.SimpleNamespace(is_directory=False, length=3, mtime_nsec=time)
        monkeypatch.setattr(tf.io.gfile, "stat", lambda _, found=found: found)
        assert versions(["ram://version"]) == expected
    monkeypatch.undo()
    assert versions(["ram://none"]) == [["ram://none"]]


def test_files_that_the_kernel_computes_have_no_version(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/proc/uptime")
    for name in ("/proc/uptime", str(link), f"file://{link}", "/sys/kernel/mm/ksm/run"):
        assert versions([name]) in (None, [[name]]), name
    assert versions([str(link)]) is None


def test_a_link_to_another_file_of_the_same_times_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, seen = tmp_path / "link", []
    real = os.stat(tmp_path)
    for number in range(2):
        file = tmp_path / str(number)
        file.write_bytes(b"one")
        link.unlink(missing_ok=True)
        link.symlink_to(file)
        (found,) = versions([str(link)]) or []
        seen.append(found[4:])
    assert seen[0] != seen[1]
    # Equal numbers of inodes on two disks, and on two mounts of a network file system.
    for major, count in ((8, 2), (0, 1)):
        devices = {}
        for minor in range(2):
            status = os.stat_result((*real[:2], os.makedev(major, minor), *real[3:]))
            monkeypatch.setattr(os, "fstat", lambda _, status=status: status)
            monkeypatch.setattr(file_versions.stat, "S_ISREG", lambda _: True)
            devices[repr(versions([str(link)]))] = minor
        assert len(devices) == count


def test_a_young_file_may_change_without_another_version(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"one")
    found = versions([str(file), "absent"])
    assert found is not None
    assert not are_old(found)
    age = int(file_versions.MIN_AGE_SECONDS * 1e9)
    name, size, changed, inode, *_ = found[0]
    assert isinstance(changed, int)
    assert isinstance(inode, int)
    assert not are_old([[name, size, changed - age, inode]])
    assert are_old([[name, size, changed - age, inode - age], found[1]])
    assert are_old([[name, size, changed - age, inode - age, 1 << 62, 1 << 62]])
