"""Unix sockets at a path, in place of those that killed processes left.

Each error names the flag, the cause and the remedy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys

from distributed_input.api.errors import ConfigError

MOST_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""Maximum length of a socket's path."""
_CONNECT_SECONDS = 1.0
_REMEDIES = {
    errno.ENOENT: "create its folder, or set a path in another one",
    errno.ENOTDIR: "set a path in a folder",
    errno.EADDRINUSE: "set another path",
}
_FOLDER = "set a path in a folder that this user may write to"


def listen(path: str, what: str) -> socket.socket:
    """Return a socket that listens at a path.

    Args:
        path: where no process listens. The socket of a process that was killed is replaced.
        what: the flag and its value, for errors.

    Raises:
        ConfigError: the path is too long, in use, not a socket, or cannot be bound.
    """
    listener = _bound(path, what)
    listener.listen()
    return listener


def make_free(path: str, what: str) -> None:
    """Check that this process can listen at a path, and remove what a killed process left there.

    The arguments and errors are those of `listen`.
    """
    with _bound(path, what):
        os.unlink(path)


def _bound(path: str, what: str) -> socket.socket:
    size = len(os.fsencode(path))
    if size > MOST_PATH_BYTES:
        raise ConfigError(
            f"{what}: the path {path} has {size} bytes, but a socket's path has at most "
            f"{MOST_PATH_BYTES}: set a shorter path"
        )
    bound = socket.socket(socket.AF_UNIX)
    try:
        _remove_leftover(path, what)
        bound.bind(path)
    except OSError as error:
        bound.close()
        remedy = _REMEDIES.get(error.errno or 0, _FOLDER)
        raise ConfigError(f"{what}: cannot bind {path} ({error.strerror}): {remedy}") from error
    except ConfigError:
        bound.close()
        raise
    return bound


def _remove_leftover(path: str, what: str) -> None:
    """Remove a socket at which no process listens.

    Raises:
        ConfigError: a process listens there, or it is not a socket.
        OSError: it belongs to another user.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{what}: {path} exists and is not a socket: set another path")
    if _is_in_use(path):
        raise ConfigError(f"{what}: another process listens at {path}: end it, or set another path")
    with contextlib.suppress(FileNotFoundError):  # another process has removed it
        os.unlink(path)


def _is_in_use(path: str) -> bool:
    """Return whether a process listens at a path. Raise PermissionError if it may not be used."""
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_CONNECT_SECONDS)
        try:
            trial.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except PermissionError:
            raise
        except OSError:  # its queue is full, or it is a socket of packets
            return True
    return True
