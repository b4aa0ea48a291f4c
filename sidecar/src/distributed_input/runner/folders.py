"""The private folders of a run: created, locked while the run is alive, then removed.

The next run removes the folders of runs that were killed; see `runtime.files.locked_folders`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from distributed_input.api import files
from distributed_input.api.errors import ConfigError
from distributed_input.runner import process_wrapper
from distributed_input.runtime import addresses
from distributed_input.runtime.files.locked_folders import (
    created,
    is_stale,
    locked,
    private,
)

_OTHER_FOLDER = "set another folder with --dir"
_PREFIX = "run-"
_DESCRIPTION = "run.json"
_MAX_PARENT_BYTES = 60
"""A socket's path has at most 103 bytes (macOS) or 107. Ours adds
/run-<12>/shared/<2>/sidecar.sock, or /run-<12>/shared/s/worker-<4>.rows."""
_SHORT_TEMPORARY = Path("/tmp")  # noqa: S108 - the folder below it is checked: `private`
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - folders with mode 0700 below it


@dataclass(frozen=True)
class RunFolders:
    """The folders of one run: absolute paths, mode 0700."""

    run: str
    """Name of the run: a random string, which marks its processes."""
    path: Path
    """Folder for tokens, configurations, ready files and logs."""
    shared: Path
    """Folder for sockets and rings, in shared memory if the machine has it."""
    states: Path | None = None
    """Folder for saved states of splits, which later runs use too."""

    @property
    def logs(self) -> Path:
        """The folder of the processes' logs."""
        return self.path / "logs"

    @property
    def tokens(self) -> Path:
        """The folder with one token file per input, for the sidecars."""
        return self.path / "tokens"

    @property
    def config(self) -> Path:
        """The sidecars' configuration file."""
        return self.path / files.CONFIG_KEY

    @property
    def sockets(self) -> Path:
        """The folder with the sockets of dispatchers and workers, which only this user can use."""
        return self.shared / "s"  # short, because a socket's path has at most 107 bytes

    def socket(self, kind: str, number: int) -> str:
        """Return the address of a dispatcher or worker. A number is used once in a run."""
        return addresses.unix(str(self.sockets / f"{kind}-{number}"))

    def trainer(self, index: int) -> Path:
        """Return the folder that a trainer shares with its sidecar. Its path is short too."""
        return self.shared / str(index)

    def token(self, name: str) -> Path:
        """Return the token file of an input."""
        return self.tokens / name

    def journal(self, name: str) -> Path:
        """Return the journal folder of an input's tf.data service dispatcher."""
        return self.path / "journals" / name

    def ready(self, process: str) -> Path:
        """Return the ready file of a process."""
        return self.path / f"{process}.ready"

    def log(self, process: str) -> Path:
        """Return the path of a process's log."""
        return self.logs / f"{process}.log"

    @property
    def place(self) -> str:
        """What tells a run from others: its process, and the folder that it was started in."""
        try:
            description = json.loads((self.path / _DESCRIPTION).read_text())
            return f"pid {description['pid']}, {description['folder']}"
        except (OSError, ValueError, KeyError):  # the run starts or ends now
            return ""


@contextlib.contextmanager
def create(
    parent: Path | None, env: Mapping[str, str], shared_bytes: int = 0
) -> Iterator[RunFolders]:
    """Create the folders of one run, and remove them on exit.

    First removes the folders of dead runs. `parent`: None selects `default_parent`. `shared_bytes`
    is the space that the run needs in the shared folder.

    Raises:
        ConfigError: a folder cannot be created, others may write to it, or it has no space.
    """
    wanted = parent or default_parent(env)
    variable = "TMPDIR=/tmp" if wanted.name == _user_folder() else "another XDG_RUNTIME_DIR"
    remedy = "another folder with --dir" if parent else f"{variable}, or another folder with --dir"
    check_encoding(wanted, f"Set {remedy}")
    # A folder that the user names may be shared, like /tmp. The run's folder below it is private.
    base = (created if parent else private)(wanted, _OTHER_FOLDER)
    remove_stale(base)
    shared_base = base
    if _has_shared_memory():
        in_memory = private(_SHARED_MEMORY / _user_folder(), _OTHER_FOLDER)
        remove_stale(in_memory)
        # Writing to full shared memory raises SIGBUS. Containers often have 64 MiB of it.
        shared_base = in_memory if _free_bytes(in_memory) >= shared_bytes else base
    _check_shared(shared_base, shared_bytes, remedy)
    run = secrets.token_hex(6)
    with contextlib.ExitStack() as stack:
        try:
            folders = _create_run(stack, run, base, shared_base)
        except OSError as error:
            failed = f"--dir {parent}" if parent else f"folder {base}"
            if shared_base != base and shared_base in Path(error.filename or "").parents:
                failed = f"folder {shared_base}"
            raise ConfigError(
                f"{failed}: cannot create a folder in it: {error.strerror}; set {remedy}"
            ) from error
        yield folders


def _create_run(stack: contextlib.ExitStack, run: str, base: Path, shared_base: Path) -> RunFolders:
    """Create the folders of one run, which exist until `stack` is closed."""
    path = stack.enter_context(locked(base / (_PREFIX + run)))
    shared = path / "shared"
    if shared_base == base:
        shared.mkdir(mode=0o700)
    else:
        shared = stack.enter_context(locked(shared_base / (_PREFIX + run)))
    # Workers trust saved states, so other users must not be able to write them.
    states = base / "states" if _is_private(base) else None
    folders = RunFolders(run, path, shared, states)
    folders.logs.mkdir(mode=0o700)
    description = {"pid": os.getpid(), "folder": _text_of(os.getcwd())}
    (path / _DESCRIPTION).write_text(json.dumps(description))
    return folders


def store_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of stored splits: on a disk, and private to the user."""
    parent = env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(parent) / "distributed-input" / "store"


def default_parent(env: Mapping[str, str]) -> Path:
    """Return a folder below $XDG_RUNTIME_DIR, or else below the folder for temporary files.

    On macOS, the latter has about 50 characters. If sockets have to be there too, it may be too
    long for their paths. Then the folder is below /tmp. A long $XDG_RUNTIME_DIR is not used then.
    """
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        own = Path(runtime) / "distributed-input"
        if _has_shared_memory() or _fits(own):
            return own
    usual = Path(tempfile.gettempdir()) / _user_folder()
    if _has_shared_memory() or _fits(usual):
        return usual
    return _SHORT_TEMPORARY / _user_folder()


def _fits(base: Path) -> bool:
    """Return whether the paths of sockets below a folder are short enough."""
    return len(os.fsencode(base)) <= _MAX_PARENT_BYTES


def live(base: Path) -> list[RunFolders]:
    """Return the folders of running runs in `base`, without their folders in shared memory."""
    return [one for one in _runs(base) if not is_stale(one.path)]


def remove_stale(base: Path) -> None:
    """Remove the folders of dead runs in `base`, and kill their processes."""
    for one in _runs(base):
        if is_stale(one.path):
            if one.run:
                process_wrapper.kill_run(one.run)
            shutil.rmtree(one.path, ignore_errors=True)


def _runs(base: Path) -> list[RunFolders]:
    found = sorted(base.glob(_PREFIX + "*"))
    return [RunFolders(path.name[len(_PREFIX) :], path, path) for path in found]


def _user_folder() -> str:
    return f"distributed-input-{os.getuid()}"


def _has_shared_memory() -> bool:
    return _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_encoding(path: str | Path, remedy: str = "Rename it") -> None:
    """Raise ConfigError if a path is not UTF-8: messages, logs and gRPC could not contain it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{str(path)!a}: this path is not UTF-8 in this process. {remedy}. If it is UTF-8, set "
            "the environment variable PYTHONUTF8=1"
        ) from error


def _text_of(folder: str | Path) -> str:
    """Return a path as text, with escapes for bytes that are not UTF-8."""
    return os.fsencode(folder).decode(errors="backslashreplace")


def _check_shared(base: Path, shared_bytes: int, remedy: str) -> None:
    free = _free_bytes(base)
    if free < shared_bytes:
        raise ConfigError(
            f"{base} has {free >> 20} MiB free, but the inputs' buffers need "
            f"{shared_bytes >> 20} MiB: lower spec.sidecar.buffer, set another folder with --dir, "
            "or give the container more shared memory with --shm-size"
        )
    if "," in str(base):
        raise ConfigError(
            f"folder {base}: gRPC does not accept a comma in a socket's path; set {remedy}"
        )
    if not _fits(base):
        raise ConfigError(
            f"folder {base}: its path has {len(os.fsencode(base))} bytes, at most "
            f"{_MAX_PARENT_BYTES} leave room for those of sockets; set {remedy}"
        )


def _is_private(folder: Path) -> bool:
    """Return whether the folder is ours, and others cannot write to it."""
    found = folder.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
