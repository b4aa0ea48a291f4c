"""The private folders of a run: made, locked while the run lives, removed when it does not.

Every folder holds a file `lock` on which the runner keeps a flock: the kernel drops it with
the runner, however that ends, and no later process can be mistaken for it by its pid. A
folder whose lock is free is of a dead run, and the next start removes it.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from distributed_input.api.errors import ConfigError
from distributed_input.runner.processes import guard

_LOCK = "lock"
_PREFIX = "run-"
_UNLOCKED_SECONDS = 60.0
_LONGEST_BASE = 60
"""Bytes; /run-<12>/shared/<99>/sidecar.sock and a socket's 103 (macOS) or 107."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders of our own, mode 0700, below it


@dataclass(frozen=True)
class Folders:
    """The folders of one run, absolute; both are mode 0700."""

    run: str
    """Name of the run: random, the mark of its processes."""
    path: Path
    """Tokens, configurations, ready files, logs."""
    shared: Path
    """Sockets and rings: shared memory where the machine has it."""

    @property
    def logs(self) -> Path:
        """Where the parts' logs are."""
        return self.path / "logs"

    def log(self, part: str) -> Path:
        """The log of the part named `part`."""
        return self.logs / f"{part}.log"


@contextlib.contextmanager
def made(parent: Path | None, env: Mapping[str, str], shared_bytes: int = 0) -> Iterator[Folders]:
    """Folders for one run below `parent` (None: see `default_parent`), removed on leaving.

    Removes what dead runs have left first. Raises ConfigError where a folder cannot be made,
    could be written by others, or has no room for `shared_bytes`.
    """
    # A folder that the user names may be shared, as /tmp is: the run's own below it is not.
    base = _made(parent) if parent else _private(default_parent(env))
    remove_stale(base)
    shared_base = base
    if _has_shared_memory():
        in_memory = _private(_SHARED_MEMORY / _own_name())
        remove_stale(in_memory)
        # Writing to a file in full shared memory is SIGBUS. A container often has 64 MiB of it.
        shared_base = in_memory if _free(in_memory) >= shared_bytes else base
    _check_shared(shared_base, shared_bytes)
    run = secrets.token_hex(6)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(_locked(base / (_PREFIX + run)))
        shared = path / "shared"
        if shared_base == base:
            shared.mkdir(mode=0o700)
        else:
            shared = stack.enter_context(_locked(shared_base / (_PREFIX + run)))
        folders = Folders(run, path, shared)
        folders.logs.mkdir(mode=0o700)
        yield folders


def default_parent(env: Mapping[str, str]) -> Path:
    """Where runs' folders go: $XDG_RUNTIME_DIR, else the folder for temporary files."""
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / "distributed-input"
    return Path(tempfile.gettempdir()) / _own_name()


def remove_stale(base: Path) -> list[str]:
    """Remove the folders of dead runs in `base`, and end their processes; the runs' names."""
    removed = []
    for folder in sorted(base.glob(_PREFIX + "*")):
        if not _is_stale(folder):
            continue
        run = folder.name[len(_PREFIX) :]
        if run:
            guard.kill_run(run)
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(run)
    return removed


def _own_name() -> str:
    return f"distributed-input-{os.getuid()}"


def _has_shared_memory() -> bool:
    return _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _check_shared(base: Path, shared_bytes: int) -> None:
    free = _free(base)
    if free < shared_bytes:
        raise ConfigError(
            f"{base} has {free >> 20} MiB free, and the inputs' buffers take "
            f"{shared_bytes >> 20}: lower spec.sidecar.buffer, name another folder with --dir, "
            "or give a container more with --shm-size"
        )
    if len(os.fsencode(base)) > _LONGEST_BASE:
        raise ConfigError(f"{base}: too long for a socket's path; name a shorter one with --dir")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"folder {folder}: {error.strerror}; choose another with --dir"
        ) from error
    return folder.absolute()


def _private(folder: Path) -> Path:
    """`folder`, made with mode 0700 where it is missing; ConfigError if it is not ours alone."""
    found = _made(folder).lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ConfigError(f"folder {folder} is not a folder of yours; choose another with --dir")
    if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"others may write to folder {folder}: chmod 700, or another --dir")
    return folder.absolute()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    folder.mkdir(mode=0o700)
    # Locked before it has its name: nobody ever sees the file `lock` unlocked in a live run.
    handle = os.open(folder / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.rename(folder / f"{_LOCK}.new", folder / _LOCK)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _is_stale(folder: Path) -> bool:
    try:
        handle = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:  # being made right now, or left half made
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > _UNLOCKED_SECONDS
        return False
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
