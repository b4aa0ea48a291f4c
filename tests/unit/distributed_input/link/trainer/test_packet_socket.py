"""Both kinds of sockets carry whole packets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.link.trainer import packet_socket
from distributed_input.link.trainer.packet_socket import StreamOfPackets

SECONDS = 10.0
LARGE = 1 << 18

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["system", "stream"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    if request.param == "stream":
        monkeypatch.delattr(socket, "SOCK_SEQPACKET", raising=False)
    first, second = packet_socket.pair()
    with first, second:
        for one in (first, second):
            one.settimeout(SECONDS)
        yield first, second


def test_a_too_long_packet_is_cut_off_and_the_next_one_is_not(pair: Pair) -> None:
    first, second = pair
    first.send(b"x" * 1000)
    first.send(b"next")
    assert second.recv(10) == b"x" * 10
    assert second.recv(10) == b"next"


def test_a_socket_that_does_not_block_returns_whole_packets_only(pair: Pair) -> None:
    first, second = pair
    second.setblocking(False)
    with pytest.raises(BlockingIOError):
        second.recv(LARGE)
    first.send(b"packet")
    assert second.recv(LARGE) == b"packet"


def test_a_server_accepts_the_same_kind(tmp_path: Path, pair: Pair) -> None:
    path = str(tmp_path / "s")
    with packet_socket.new() as listening, packet_socket.new() as connecting:
        listening.bind(path)
        listening.listen()
        connecting.connect(path)
        accepted, _ = listening.accept()
        with accepted:
            accepted.send(b"one")
            accepted.send(b"two")
            assert (connecting.recv(LARGE), connecting.recv(LARGE)) == (b"one", b"two")


# What only the stream has to do.


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StreamOfPackets, socket.socket]]:
    """Yield a socket, and the other end as a plain stream."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with StreamOfPackets(fileno=ours.detach()) as wrapped, theirs:
        theirs.settimeout(SECONDS)
        yield wrapped, theirs


def test_a_packet_may_arrive_in_pieces(stream: tuple[StreamOfPackets, socket.socket]) -> None:
    ours, theirs = stream
    ours.setblocking(False)
    data = (5).to_bytes(4, "little") + b"piece"
    for byte in data[:-1]:
        theirs.send(bytes([byte]))
        with pytest.raises(BlockingIOError):
            ours.recv(LARGE)
    theirs.send(data[-1:])
    assert ours.recv(LARGE) == b"piece"


@pytest.mark.parametrize("sent", [b"\5\0", b"\5\0\0\0pie"])
def test_a_connection_that_ends_within_a_packet_has_ended(
    stream: tuple[StreamOfPackets, socket.socket], sent: bytes
) -> None:
    ours, theirs = stream
    theirs.send(sent)
    theirs.close()
    assert ours.recv(LARGE) == b""


def test_a_packet_of_which_a_part_was_sent_is_completed(
    stream: tuple[StreamOfPackets, socket.socket],
) -> None:
    """The peer reads while two threads send more than the buffer holds."""
    ours, theirs = stream
    ours.setblocking(False)
    reader = StreamOfPackets(fileno=theirs.detach())
    reader.settimeout(SECONDS)
    count = 40

    def send(letter: bytes) -> None:
        left = count
        while left:
            try:
                ours.send(letter * LARGE)
                left -= 1
            except BlockingIOError:
                ended.wait(0.001)

    ended = threading.Event()
    threads = [threading.Thread(target=send, args=(one,)) for one in (b"a", b"b")]
    with reader:
        for thread in threads:
            thread.start()
        packets = [reader.recv(LARGE) for _ in range(2 * count)]
        for thread in threads:
            thread.join(SECONDS)
    assert sorted(packets) == [b"a" * LARGE] * count + [b"b" * LARGE] * count


def test_a_peer_that_reads_only_a_part_ends_the_connection(
    stream: tuple[StreamOfPackets, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packet_socket, "_REST_SECONDS", 0.05)
    monkeypatch.setattr(packet_socket, "_SLICE_SECONDS", 0.01)
    ours, theirs = stream
    ours.setblocking(False)
    with pytest.raises(BrokenPipeError, match="only a part"):
        ours.send(bytes(1 << 26))
    while theirs.recv(1 << 20):
        pass  # then comes the end


def test_a_send_within_a_send_does_not_wait(
    stream: tuple[StreamOfPackets, socket.socket],
) -> None:
    """A finalizer may run within `send`, in the same thread."""
    ours, _ = stream
    ours.setblocking(False)
    with ours._sending, pytest.raises(BlockingIOError):
        ours.send(b"slot")
