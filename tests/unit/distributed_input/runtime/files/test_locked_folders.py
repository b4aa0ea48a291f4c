"""Folders of dead processes are removed, those of live ones are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runtime.files import locked_folders

_CODE = """
import sys
from distributed_input.runtime.files import locked_folders
with locked_folders.temporary("di-test") as folder:
    (folder / "constants").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def started() -> tuple[subprocess.Popen[str], Path]:
    """Return a process that holds a folder, and the folder."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", _CODE], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one():
    (killed, left), (alive, kept) = started(), started()
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=30)
    assert (left / "constants").exists()
    with locked_folders.temporary("di-test") as folder:
        assert not left.exists()
        assert (kept / "constants").exists()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    alive.communicate("", timeout=30)
    assert not kept.exists()


def test_a_folder_that_is_being_created_is_kept_for_a_minute(tmp_path):
    folder = tmp_path / f"di-test-{os.getuid()}" / "new"
    folder.mkdir(parents=True)
    with locked_folders.temporary("di-test"):
        assert folder.exists()
    old = time.time() - 120
    os.utime(folder, (old, old))
    with locked_folders.temporary("di-test"):
        assert not folder.exists()


def test_a_parent_that_is_not_a_folder_is_rejected(tmp_path):
    (tmp_path / f"di-test-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="set another folder with TMPDIR"):
        locked_folders.parent_of("di-test")
    with pytest.raises(ConfigError, match="set another folder with TMPDIR"):
        with locked_folders.temporary("di-test"):
            pass


def test_a_folder_that_is_still_needed_is_kept():
    folder = locked_folders.parent_of("di-test") / "dead"
    folder.mkdir()
    (folder / "lock").touch()
    with locked_folders.temporary("di-test", lambda one: one == folder):
        assert folder.exists()
    with locked_folders.temporary("di-test"):
        assert not folder.exists()
