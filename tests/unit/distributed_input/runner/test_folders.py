"""A run's folders: private, removed at the end, and never removed from a live run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import folders
from distributed_input.runtime.files import locked_folders


@pytest.fixture
def home(monkeypatch):
    """One folder for everything, shared memory included. The paths of tmp_path are too long."""
    with tempfile.TemporaryDirectory(prefix="di-") as created:
        shared = Path(created) / "shm"
        shared.mkdir()
        monkeypatch.setattr(folders, "_SHARED_MEMORY", shared)
        yield Path(created)


def dead_run(base: Path, name: str = "0123456789ab") -> Path:
    folder = base / f"run-{name}"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "token").touch()
    return folder


def refused(text: str, parent: Path | None, shared_bytes: int = 0, **env: str) -> None:
    """Check that the folders of a run cannot be created, with this error."""
    with pytest.raises(ConfigError, match=text):
        with folders.create(parent, env, shared_bytes):
            pass


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_private_and_removed_at_the_end(home):
    with folders.create(None, {"XDG_RUNTIME_DIR": str(home)}) as created:
        assert created.path.parent == home / "distributed-input"
        assert created.shared.is_relative_to(home / "shm")
        assert [mode(p) for p in (created.path, created.shared, created.logs)] == [0o700] * 3
        (created.shared / "ring").touch()
    assert not created.path.exists()
    assert not created.shared.exists()


def test_the_folder_of_states_outlives_a_run(home):
    with folders.create(home, {}) as first:
        pass
    with folders.create(home, {}) as second:
        assert first.states == second.states == home / "states"
        assert not second.path.is_relative_to(home / "states")


def test_states_are_not_kept_where_others_may_write_them(home):
    home.chmod(0o777)
    with folders.create(home, {}) as created:
        assert created.states is None


def test_without_shared_memory_there_is_one_folder(home, monkeypatch):
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    with folders.create(home / "here", {}) as created:
        assert created.shared == created.path / "shared"
        assert mode(created.shared) == 0o700


def test_buffers_that_do_not_fit_into_shared_memory_use_the_other_folder(home, monkeypatch):
    memory = home / "shm"
    monkeypatch.setattr(
        folders, "_free_bytes", lambda at: (64 if memory in at.parents else 1024) << 20
    )
    with folders.create(home, {}, shared_bytes=64 << 20) as created:
        assert created.shared.is_relative_to(memory)
    with folders.create(home, {}, shared_bytes=65 << 20) as created:
        assert created.shared == created.path / "shared"
    refused(r"1024 MiB free.* need 2048 MiB: lower spec\.sidecar\.buffer", home, 2 << 30)


def test_a_path_that_is_too_long_for_a_socket_is_rejected(home, monkeypatch):
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    long = home / ("x" * 60)
    text = rf"^folder {long}: its path has {len(str(long))} bytes, at most 60 .*; set another"
    refused(text, long)


def test_the_error_about_a_default_folder_names_the_variable(home, monkeypatch):
    """Shared memory has no room, so sockets and buffers are in the folder for temporary files."""
    long = home / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(long))
    memory = home / "shm"
    monkeypatch.setattr(folders, "_free_bytes", lambda at: 0 if memory in at.parents else 1 << 40)
    variables = {"TMPDIR=/tmp": {}, "another XDG_RUNTIME_DIR": {"XDG_RUNTIME_DIR": str(long)}}
    for remedy, env in variables.items():
        refused(f"^folder .*; set {remedy}, or another folder with", None, 1, **env)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such names")
def test_a_path_that_is_not_utf_8_is_rejected(home, monkeypatch):
    """Shared memory has the sockets, but messages have the path, too."""
    other = Path(os.fsdecode(os.fsencode(home) + b"/\xff"))
    other.mkdir()
    text = rf"^'{home}/\\udcff.*': this path is not UTF-8 in this process\. Set "
    with pytest.raises(ConfigError, match=text + r"another folder with --dir\. If") as raised:
        with folders.create(other, {}):
            pass
    str(raised.value).encode()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(other))
    refused(text + "TMPDIR=/tmp, or another folder", None)
    assert list(other.iterdir()) == []


def test_the_place_of_a_run_in_a_folder_that_is_not_utf_8_can_be_printed(home, monkeypatch):
    monkeypatch.setattr(os, "getcwd", lambda: "/caf\udce9")
    with folders.create(None, {}) as created:
        assert created.place == f"pid {os.getpid()}, /caf\\xe9"


def test_a_runtime_folder_that_is_too_long_is_not_used_for_sockets(home, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(home))
    long = home / ("x" * 60)
    long.mkdir()
    env = {"XDG_RUNTIME_DIR": str(long)}
    assert folders.default_parent(env).parent == long  # sockets are in shared memory
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    assert folders.default_parent(env).parent == home


def test_a_path_that_grpc_cannot_use_is_rejected(home, monkeypatch):
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    refused("comma", home / "a,b")


def test_the_next_run_removes_the_folders_of_dead_runs(home):
    dead = dead_run(home)
    shared = dead_run(home / "shm" / f"distributed-input-{os.getuid()}")
    with folders.create(home, {}):
        assert not dead.exists()
        assert not shared.exists()


def test_a_live_run_keeps_its_folders(home):
    live = dead_run(home)
    with open(live / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with folders.create(home, {}):
            assert live.exists()


def test_a_default_folder_that_others_may_write_to_is_rejected(home):
    base = home / "distributed-input"
    base.mkdir(mode=0o700)
    base.chmod(0o777)
    refused("chmod 700`, or set another folder with --dir", None, XDG_RUNTIME_DIR=str(home))


def test_a_link_in_place_of_the_default_folder_is_rejected(home):
    (home / "elsewhere").mkdir()
    (home / "distributed-input").symlink_to(home / "elsewhere")
    refused("not a folder that you own", None, XDG_RUNTIME_DIR=str(home))


def test_the_error_names_a_folder_that_cannot_be_created(home):
    (home / "file").touch()
    refused(r"folder .*file/x: .*--dir", home / "file" / "x")


def test_a_folder_that_cannot_be_written_is_one_line_with_the_flag(home, monkeypatch):
    """Access rights do not show a read-only mount."""
    sealed = home

    def locked(folder: Path) -> contextlib.AbstractContextManager[Path]:
        if folder.is_relative_to(sealed):
            raise OSError(errno.EROFS, "Read-only file system", str(folder))
        return locked_folders.locked(folder)

    monkeypatch.setattr(folders, "locked", locked)
    text = "cannot create a folder in it: Read-only file system; set"
    refused(f"^--dir {home}: {text} another folder with --dir$", home)
    default = home / "distributed-input"
    refused(f"^folder {default}: {text} another XDG_RUNTIME_DIR", None, XDG_RUNTIME_DIR=str(home))
    sealed = home / "shm"
    refused(f"^folder {home}/shm/.*: {text}", home)
    assert list(home.glob("run-*")) == []


def test_an_error_of_the_run_itself_is_not_one_of_its_folders(home):
    with pytest.raises(OSError, match="other"):
        with folders.create(home, {}):
            raise OSError("other")


def test_a_long_folder_for_temporary_files_is_not_used_for_sockets(home, monkeypatch):
    """On macOS it has about 50 characters, and there is no shared memory."""
    usual = Path("/var/folders/zz") / ("x" * 30) / "T"
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(usual))
    assert folders.default_parent({}).parent == usual  # sockets are in shared memory
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    assert folders.default_parent({}).parent == Path("/tmp")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(home))
    assert folders.default_parent({}).parent == home


def test_stored_splits_are_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert folders.store_folder({}) == Path("/home/me/.cache/distributed-input/store")
    found = folders.store_folder({"XDG_CACHE_HOME": "/cache"})
    assert found == Path("/cache/distributed-input/store")
