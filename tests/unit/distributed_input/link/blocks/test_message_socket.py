from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
import weakref
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.link.blocks import message_socket, shared_region
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.blocks.shared_region import RegionReader, RegionWriter

SECONDS = 10.0
SMALL = 4096  # bytes of a socket's buffers
LENGTH = struct.Struct("<Q")


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected TCP sockets with small buffers."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        one.connect(listener.getsockname())
        return one, listener.accept()[0]


class Partial(socket.socket):
    """Sends a part of what it gets, as when a signal interrupts it. It takes over a socket."""

    def __init__(self, other: socket.socket, most: int) -> None:
        super().__init__(fileno=other.detach())
        self._most = most

    def sendmsg(self, buffers: Iterable[bytes | memoryview], *_: object) -> int:  # type: ignore[override]
        return self.send(b"".join(buffers)[: self._most])


@contextlib.contextmanager
def closing(*connected: socket.socket | MessageSocket) -> Iterator[None]:
    try:
        yield
    finally:
        for one in connected:
            one.close()


@contextlib.contextmanager
def running(act: object, *args: object) -> Iterator[list[object]]:
    """Run `act` in a thread. Yield what it returned or raised, which is there after the block."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(act(*args))  # type: ignore[operator]
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield results
    thread.join(SECONDS)
    assert not thread.is_alive(), "it blocks"


# Messages.

few_pieces = st.lists(st.sampled_from([0, 0, 1, 7, 8, 511, 5000, 70_000]), max_size=9)
many_pieces = st.builds(
    lambda count, size: [size] * count, st.integers(500, 1300), st.sampled_from([0, 1, 30])
)
kinds = st.sampled_from([bytes, memoryview])


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.one_of(few_pieces, many_pieces), kinds), max_size=5),
    st.booleans(),
    st.sampled_from([0, 0, 700, 70_003]),
)
def test_messages_arrive_equal_and_in_order(
    messages: list[tuple[list[int], type]], over_tcp: bool, partial: int
) -> None:
    mine, theirs = tcp_pair() if over_tcp else socket.socketpair()
    ends = (Partial(mine, partial) if partial else mine, theirs)
    numbers = itertools.count()

    def pieces_of(sizes: list[int], kind: type) -> list[bytes | memoryview]:
        return [kind(np.random.default_rng(next(numbers)).bytes(size)) for size in sizes]

    sent = [pieces_of(*message) for message in messages]
    sender, receiver = map(MessageSocket, ends)

    def send_all() -> None:
        for pieces in sent:
            assert sender.send(pieces) == sum(map(len, pieces))
        sender.close()

    with closing(sender, receiver), running(send_all) as results:
        received = list(iter(receiver.receive, None))
    assert [bytes(message) for message in received] == [b"".join(pieces) for pieces in sent]
    assert results == [None]


# The end.


def received_after(raw: bytes) -> memoryview | None:
    """Return what is received if the peer sends some bytes and ends the connection."""
    peer, mine = socket.socketpair()
    with closing(peer, receiver := MessageSocket(mine)):
        peer.sendall(raw)
        peer.close()
        first = receiver.receive()
        return receiver.receive() if first is not None else None


@pytest.mark.parametrize("raw", [b"", LENGTH.pack(3) + b"abc", LENGTH.pack(0)])
def test_an_end_between_messages_is_no_error(raw: bytes) -> None:
    assert received_after(raw) is None


@pytest.mark.parametrize(
    "raw",
    [
        LENGTH.pack(3)[:1],
        LENGTH.pack(0)[:7],
        b"\xff" * 7,  # it is not known that the length would be too large
        LENGTH.pack(3),
        LENGTH.pack(3) + b"ab",
        LENGTH.pack(0) + LENGTH.pack(1 << 20) + b"a",
    ],
)
def test_an_end_within_a_message_is_an_error(raw: bytes) -> None:
    with pytest.raises(ConnectionResetError, match="within a message"):
        received_after(raw)


@pytest.mark.parametrize("size", [(1 << 31) + 1, (1 << 64) - 1])
def test_no_memory_is_allocated_for_a_length_that_is_too_large(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(*_: object) -> None:
        raise AssertionError("memory was allocated")

    monkeypatch.setattr(np, "empty", empty)
    with pytest.raises(ValueError, match=f"a message of {size} bytes was announced, at most"):
        received_after(LENGTH.pack(size))


def test_a_peer_that_is_gone_ends_sending() -> None:
    mine, peer = tcp_pair()
    with closing(sender := MessageSocket(mine)):
        peer.close()
        with pytest.raises(ConnectionError):
            sender.send([bytes(1 << 24)])


def test_shutting_down_wakes_a_blocked_send() -> None:
    one, peer = tcp_pair()
    sender = MessageSocket(one)
    message = bytes(1 << 24)  # more than the buffers of both ends
    with closing(sender, peer), running(sender.send, [message]) as results:
        assert len(peer.recv(8, socket.MSG_WAITALL)) == 8  # it has begun
        sender.shut_down()
    assert isinstance(results[0], BrokenPipeError)  # not the timeout of a peer that does not read


def test_shutting_down_twice_and_after_the_end_is_no_error() -> None:
    one, peer = tcp_pair()
    connected = MessageSocket(one)
    with closing(connected):
        peer.close()
        connected.shut_down()
        connected.shut_down()
        connected.close()
        connected.shut_down()
    assert one.fileno() == -1


# Options.


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_dead_peer_is_detected_and_small_messages_are_not_delayed(family: int) -> None:
    with socket.socket(family) as one:
        one.settimeout(1.0)
        MessageSocket(one)
        assert one.gettimeout() is None, "a slow peer is no error"
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        expected = {
            "TCP_KEEPIDLE": 4,
            "TCP_KEEPINTVL": 2,
            "TCP_KEEPCNT": 2,
            "TCP_USER_TIMEOUT": 8000,
        }
        found = {
            name: one.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in expected
            if hasattr(socket, name)
        }
        assert found == {name: expected[name] for name in found}


def test_memory_for_a_long_message_grows_with_what_has_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allocated: list[int] = []
    empty = np.empty
    monkeypatch.setattr(message_socket, "_FIRST_BYTES", 4)

    def counted(size: int, kind: type[np.uint8]) -> np.ndarray:
        allocated.append(size)
        return empty(size, kind)

    monkeypatch.setattr(np, "empty", counted)
    with pytest.raises(ConnectionResetError, match="within a message"):
        received_after(LENGTH.pack(1 << 30) + b"12345678")
    assert allocated == [4, 8, 16]


@pytest.mark.parametrize("size", [0, 1, 4, 5, 8, 9, 100])
def test_a_long_message_is_complete(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(message_socket, "_FIRST_BYTES", 4)
    text = bytes(range(size))
    ours, theirs = socket.socketpair()
    receiving = MessageSocket(ours)
    with closing(receiving, theirs):
        theirs.sendall(LENGTH.pack(size) + text)
        received = receiving.receive()
        assert received is not None
        assert received.tobytes() == text


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no such memory")
@pytest.mark.parametrize("end", [RegionWriter, RegionReader])
def test_closing_releases_the_memory(end: type[RegionWriter | RegionReader]) -> None:
    """Other objects may refer to a connection that is closed."""
    with shared_region.created(1 << 16) as descriptor:
        region = end(descriptor)
    one, other = socket.socketpair()
    with other:
        connection = MessageSocket(one, region)
        memory = weakref.ref(region)
        del region
        assert memory() is not None
        connection.close()
        assert memory() is None
