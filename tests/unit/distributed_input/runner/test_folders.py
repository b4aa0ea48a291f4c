"""A run's folders: private, gone afterwards, and never taken from a live run."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import folders


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everything below one folder, "shared memory" too; pytest's own have too long a name."""
    with tempfile.TemporaryDirectory(prefix="di-") as made:
        shared = Path(made) / "shm"
        shared.mkdir()
        monkeypatch.setattr(folders, "_SHARED_MEMORY", shared)
        yield Path(made)


def dead_run(base: Path, name: str = "0123456789ab") -> Path:
    folder = base / f"run-{name}"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "token").touch()
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_private_and_gone_afterwards(home: Path) -> None:
    with folders.made(None, {"XDG_RUNTIME_DIR": str(home)}) as made:
        assert made.path.parent == home / "distributed-input"
        assert made.shared.is_relative_to(home / "shm")
        assert [mode(p) for p in (made.path, made.shared, made.logs)] == [0o700] * 3
        (made.shared / "ring").touch()
    assert not made.path.exists()
    assert not made.shared.exists()


def test_without_shared_memory_all_is_in_one_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    with folders.made(home / "here", {}) as made:
        assert made.shared == made.path / "shared"
        assert mode(made.shared) == 0o700


def test_buffers_that_do_not_fit_into_shared_memory_go_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = home / "shm"
    monkeypatch.setattr(folders, "_free", lambda at: 64 << 20 if memory in at.parents else 1 << 30)
    with folders.made(home, {}, shared_bytes=64 << 20) as made:
        assert made.shared.is_relative_to(memory)
    with folders.made(home, {}, shared_bytes=65 << 20) as made:
        assert made.shared == made.path / "shared"
    with pytest.raises(
        ConfigError, match=r"1024 MiB free.* take 2048: lower spec\.sidecar\.buffer"
    ):
        with folders.made(home, {}, shared_bytes=2 << 30):
            pass


def test_a_path_that_is_too_long_for_a_socket_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_SHARED_MEMORY", home / "none")
    with pytest.raises(ConfigError, match="too long for a socket"):
        with folders.made(home / ("x" * 60), {}):
            pass


def test_the_next_start_removes_what_dead_runs_left(home: Path) -> None:
    dead = dead_run(home)
    shared = dead_run(home / "shm" / f"distributed-input-{os.getuid()}")
    with folders.made(home, {}):
        assert not dead.exists()
        assert not shared.exists()


def test_a_live_run_keeps_its_folders(home: Path) -> None:
    live = dead_run(home)
    with open(live / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with folders.made(home, {}):
            assert live.exists()


def test_a_folder_that_is_being_made_is_left_alone_for_a_while(home: Path) -> None:
    young = home / "run-00"
    young.mkdir()
    assert folders.remove_stale(home) == []
    an_hour_ago = time.time() - 3600
    os.utime(young, (an_hour_ago, an_hour_ago))
    assert folders.remove_stale(home) == ["00"]
    assert not young.exists()


def test_a_default_folder_that_others_may_write_to_is_refused(home: Path) -> None:
    base = home / "distributed-input"
    base.mkdir(mode=0o700)
    base.chmod(0o777)
    with pytest.raises(ConfigError, match="chmod 700, or another --dir"):
        with folders.made(None, {"XDG_RUNTIME_DIR": str(home)}):
            pass


def test_a_link_in_the_place_of_the_default_folder_is_refused(home: Path) -> None:
    (home / "elsewhere").mkdir()
    (home / "distributed-input").symlink_to(home / "elsewhere")
    with pytest.raises(ConfigError, match="not a folder of yours"):
        with folders.made(None, {"XDG_RUNTIME_DIR": str(home)}):
            pass


def test_a_folder_that_cannot_be_made_is_named(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(ConfigError, match=r"folder .*file/x: .*--dir"):
        with folders.made(home / "file" / "x", {}):
            pass
