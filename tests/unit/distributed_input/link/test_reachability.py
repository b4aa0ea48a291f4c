"""Whether the host of an address answers."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from distributed_input.link import reachability
from distributed_input.link.reachability import host_answers


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (None, True),
        (ConnectionRefusedError(), True),
        (ConnectionResetError(), True),
        (TimeoutError(), False),
        (OSError(errno.EHOSTUNREACH, "no route to host"), False),
        (OSError(errno.ENETUNREACH, "no route"), False),
        (socket.gaierror(socket.EAI_AGAIN, "no name server"), True),
        (OSError(errno.EMFILE, "too many open files"), True),
    ],
)
def test_a_host_answers_if_its_kernel_does(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None, answers: bool
) -> None:
    calls: list[Any] = []

    def create_connection(address: Any, timeout: float) -> socket.socket:
        calls.append((address, timeout))
        if error:
            raise error
        return socket.socket()

    monkeypatch.setattr(reachability.socket, "create_connection", create_connection)
    assert host_answers("[2001:db8::1]:7071") == answers
    assert calls == [(("2001:db8::1", 7071), reachability.ANSWER_SECONDS)]


@pytest.mark.parametrize("address", ["127.0.0.1:9", "[::1]:9", "unix:/run/worker"])
def test_this_host_answers(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.delattr(reachability.socket, "create_connection")
    assert host_answers(address)
