"""Private folders and files that are locked while their process is alive.

The process holds a flock. The kernel releases it when the process ends, however it ends, so no
later process can be mistaken for it by its pid. This also works for containers that share a folder.
If a lock is free, its process is dead, and others may remove what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from distributed_input.api.errors import ConfigError

_LOCK = "lock"
_UNLOCKED_SECONDS = 60.0


def lock_new(file: Path) -> int:
    """Create a locked file. Return its handle; closing it releases the lock.

    The file is locked before it gets its name, so that it is never visible unlocked.
    """
    new = file.with_name(file.name + ".new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with contextlib.suppress(OSError):  # some network file systems have no locks
        fcntl.flock(handle, fcntl.LOCK_EX)
    new.rename(file)
    return handle


def is_free(file: Path) -> bool:
    """Return whether no live process holds the lock of a file.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    try:
        handle = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Create a folder with mode 0700, lock it, and remove it on exit."""
    folder.mkdir(mode=0o700)
    handle = None
    try:
        handle = lock_new(folder / _LOCK)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def is_stale(folder: Path) -> bool:
    """Return whether the process of a locked folder is dead."""
    try:
        return is_free(folder / _LOCK)
    except FileNotFoundError:  # another process creates it now, or ended while it did
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > _UNLOCKED_SECONDS
        return False


def created(folder: Path, remedy: str) -> Path:
    """Create a folder with mode 0700 if it is missing. Return its absolute path.

    Raises:
        ConfigError: it cannot be created. The message ends with the remedy.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"folder {folder}: {error.strerror}; {remedy}") from error
    return folder.absolute()


def private(folder: Path, remedy: str) -> Path:
    """Create a folder as `created` does, and check that it is ours alone.

    Raises:
        ConfigError: it cannot be created, belongs to another user, or others may write to it.
    """
    found = created(folder, remedy).lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigError(f"folder {folder}: not a folder that you own; {remedy}")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"folder {folder}: other users may write to it; run `chmod 700`, or {remedy}"
        )
    return folder.absolute()


def parent_of(name: str) -> Path:
    """Return the folder of the temporary folders of a name; see `private`."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    return private(folder, "set another folder with TMPDIR")


@contextlib.contextmanager
def temporary(name: str, is_needed: Callable[[Path], bool] = lambda _: False) -> Iterator[Path]:
    """Create a locked temporary folder, and remove those of dead processes with the same name,
    unless they are still needed. Their parent is that of `parent_of`.
    """
    parent = parent_of(name)
    for folder in parent.iterdir():
        if is_stale(folder) and not is_needed(folder):
            shutil.rmtree(folder, ignore_errors=True)
    with locked(parent / secrets.token_hex(8)) as folder:
        yield folder
