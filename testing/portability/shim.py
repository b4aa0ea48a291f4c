"""Removes the calls that macOS lacks from the modules of this process.

`path/sitecustomize.py` applies it to processes that read PYTHONPATH. `python -I -S` does not. So a
shimmed process that starts one inserts this file: `python -I -S shim.py SCRIPT ARGUMENTS...`.

Only the modules of Python change. TensorFlow, gRPC and psutil still use what Linux has.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SEEN_ENV = "PORTABILITY_SEEN"
"""A folder: each shimmed process creates a file there, which has its command line."""
pidfd_open = getattr(os, "pidfd_open", None)
"""What the shim removes, for tests that observe other processes."""

_REMOVED: dict[Any, tuple[str, ...]] = {
    os: (
        *("memfd_create", "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "pidfd_open", "eventfd", "pipe2"),
        *("sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise", "splice"),
    ),
    socket: (
        *("SOCK_SEQPACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "MSG_CMSG_CLOEXEC"),
        *("TCP_USER_TIMEOUT", "TCP_KEEPIDLE"),
    ),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SETPIPE_SZ"),
    select: ("epoll", "POLLRDHUP"),
    mmap: ("MADV_REMOVE",),
    signal: ("pidfd_send_signal",),
}
_C_FUNCTIONS = ("prctl", "mallopt")
_HIDDEN = ("/proc", "/sys", "/dev/shm")
_FILE_CALLS: dict[Any, tuple[str, ...]] = {
    os: ("open", "stat", "lstat", "listdir", "scandir", "readlink", "access"),
    io: ("open",),
    builtins: ("open",),
}


def apply() -> None:
    """Remove the calls. A second call does nothing."""
    if not hasattr(socket, "SOCK_SEQPACKET"):
        return
    for module, names in _REMOVED.items():
        for name in names:
            vars(module).pop(name, None)
    for module, names in _FILE_CALLS.items():
        for name in names:
            setattr(module, name, _hiding(getattr(module, name)))
    _remove_c_functions()
    _refuse_abstract_names()
    _apply_to_isolated_children()
    if folder := os.environ.get(SEEN_ENV):
        (Path(folder) / str(os.getpid())).write_text(" ".join(sys.orig_argv))


def _hiding(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does not find files of Linux."""
    is_access = original is os.access

    def call(path: Any = ".", *args: Any, **options: Any) -> Any:
        if isinstance(path, str | bytes | os.PathLike):
            name = os.fsdecode(path)
            hidden = any(name == one or name.startswith(f"{one}/") for one in _HIDDEN)
            if hidden and not _caller().startswith("psutil"):
                if is_access:
                    return False
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return original(path, *args, **options)

    return call


def _caller() -> str:
    """Return the module that calls the function that calls this one."""
    return str(sys._getframe(2).f_globals.get("__name__", ""))


def _remove_c_functions() -> None:
    find = ctypes.CDLL.__getattr__

    def get(library: ctypes.CDLL, name: str) -> Any:
        if name in _C_FUNCTIONS:
            raise AttributeError(f"symbol not found: {name}")
        return find(library, name)

    ctypes.CDLL.__getattr__ = get


def _refuse_abstract_names() -> None:
    """Refuse the names of Unix sockets that are not files."""
    for name in ("bind", "connect"):

        def call(sock: socket.socket, address: Any, *, name: str = name) -> None:
            if isinstance(address, str) and address.startswith("\0"):
                raise FileNotFoundError(errno.ENOENT, "no abstract names")
            getattr(super(socket.socket, sock), name)(address)

        setattr(socket.socket, name, call)


def _apply_to_isolated_children() -> None:
    start = subprocess.Popen.__init__

    def init(self: Any, args: Any, *more: Any, **options: Any) -> None:
        start(self, shimmed(args), *more, **options)

    subprocess.Popen.__init__ = init


def shimmed(command: Any) -> Any:
    """Return the command with this file before its script, if it would not be shimmed itself."""
    if isinstance(command, str | bytes | os.PathLike) or command[0] != sys.executable:
        return command
    words: Sequence[str] = list(command)
    script = next((i for i, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    isolated = {"-I", "-S"} & set(words[1:script])
    if not isolated or {"-c", "-m"} & set(words[1:script]) or words[script] == __file__:
        return command
    return [*words[:script], __file__, *words[script:]]


if __name__ == "__main__":
    import runpy

    apply()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
