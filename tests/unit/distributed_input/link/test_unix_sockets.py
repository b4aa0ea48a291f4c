"""Sockets at paths: leftovers are replaced, and each error has its cause and remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.link import unix_sockets

WHAT = "--listen unix:x"


def leave(path: Path) -> None:
    """Leave a socket, as a process that is killed does."""
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))


def accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


@pytest.mark.parametrize("is_left", [False, True])
def test_it_listens_also_where_a_killed_process_did(folder: Path, is_left: bool) -> None:
    path = folder / "s"
    if is_left:
        leave(path)
    with unix_sockets.listen(str(path), WHAT):
        assert accepts(path)


@contextlib.contextmanager
def listening_at(path: Path, kind: int = socket.SOCK_STREAM) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.bind(str(path))
        one.listen(0)
        yield


def a_stream(path: Path) -> contextlib.AbstractContextManager[object]:
    return listening_at(path)


def a_packet_socket(path: Path) -> contextlib.AbstractContextManager[object]:
    if not hasattr(socket, "SOCK_SEQPACKET"):
        pytest.skip("the system has none")
    return listening_at(path, socket.SOCK_SEQPACKET)


@contextlib.contextmanager
def a_full_queue(path: Path) -> Iterator[None]:
    with listening_at(path), contextlib.ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(str(path))
        yield


@pytest.mark.parametrize("other", [a_stream, a_packet_socket, a_full_queue])
@pytest.mark.parametrize("use", [unix_sockets.listen, unix_sockets.make_free])
def test_the_socket_of_a_process_that_lives_is_kept(
    folder: Path,
    other: Callable[[Path], contextlib.AbstractContextManager[object]],
    use: Callable[[str, str], object],
) -> None:
    path = folder / "s"
    with other(path):
        with pytest.raises(
            ConfigError,
            match=f"^{WHAT}: another process listens at {path}: end it, or set another path$",
        ):
            use(str(path), WHAT)
        assert path.exists()


def test_a_file_that_is_not_a_socket_is_kept(folder: Path) -> None:
    path = folder / "s"
    path.write_text("mine")
    with pytest.raises(ConfigError, match=f"^{WHAT}: {path} exists and is not a socket: set"):
        unix_sockets.listen(str(path), WHAT)
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_is_refused(folder: Path) -> None:
    """Also one whose bytes are too many, but not its characters."""
    left = unix_sockets.MOST_PATH_BYTES - len(str(folder)) - 1
    with unix_sockets.listen(f"{folder}/{'x' * left}", WHAT):
        pass
    for name in ("x" * (left + 1), "é" * (left // 2 + 1)):
        path = f"{folder}/{name}"
        size, most = len(os.fsencode(path)), unix_sockets.MOST_PATH_BYTES
        with pytest.raises(
            ConfigError,
            match=f"^{WHAT}: the path {path} has {size} bytes, .* at most {most}: set a shorter",
        ):
            unix_sockets.listen(path, WHAT)


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (errno.EACCES, r"\(Permission denied\): set a path in a folder that this user may write"),
        (errno.EROFS, r"\(Read-only file system\): set a path in a folder that this user may"),
        (errno.EADDRINUSE, r"\(Address already in use\): set another path"),
    ],
)
def test_a_path_that_cannot_be_bound_has_its_cause(
    folder: Path, cause: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The administrator may write to all folders. So the system's answer is an imitation."""
    sockets: list[socket.socket] = []

    def bind(self: socket.socket, _address: object) -> None:
        sockets.append(self)
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(ConfigError, match=f"^{WHAT}: cannot bind {folder}/s {text}"):
        unix_sockets.listen(f"{folder}/s", WHAT)
    assert [one.fileno() for one in sockets] == [-1]


def test_the_socket_of_another_user_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(folder / "s")

    def connect(_socket: socket.socket, _address: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(ConfigError, match=r"\(Permission denied\): set a path in a folder that"):
        unix_sockets.listen(f"{folder}/s", WHAT)
    assert (folder / "s").exists()
