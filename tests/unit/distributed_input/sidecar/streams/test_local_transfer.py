"""A worker and a sidecar of one host share memory for messages. Both ends are real."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from distributed_input.api.proto import worker_pb2
from distributed_input.runtime import shared_region
from distributed_input.runtime.message_socket import MessageSocket
from distributed_input.sidecar.streams.direct_transfer import DirectTransfer
from distributed_input.worker.transfer_listener import TransferListener, TransferOffer
from tests.unit.distributed_input.sidecar.streams.test_direct_transfer import (
    Receiving,
    wait_for_connecting,
)
from tests.unit.distributed_input.sidecar.system import eventually

SECONDS = 10.0
LARGE = 1 << 20


@pytest.fixture
def listener() -> Iterator[TransferListener]:
    listener = TransferListener("127.0.0.1:65535")
    listener.start()
    yield listener
    listener.close()


@contextlib.contextmanager
def offering(
    listener: TransferListener,
) -> Iterator[tuple[TransferOffer, worker_pb2.TransferOffer]]:
    with listener.offer(lambda _: None) as offer:
        first = worker_pb2.ConnectResponse.FromString(next(offer.send([])))
        yield offer, first.offer


@contextlib.contextmanager
def connected(
    listener: TransferListener, local: str | None = None
) -> Iterator[tuple[MessageSocket, DirectTransfer]]:
    """Yield both ends of a connection.

    Args:
        listener: of the worker.
        local: name of the Unix socket in the offer, if it is not the listener's.
    """
    with offering(listener) as (offer, offered):
        if local is not None:
            offered.local = local
        direct = DirectTransfer("127.0.0.1")
        direct.connect(offered)
        eventually(lambda: offer._accepted is not None)
        assert offer._accepted is not None
        yield offer._accepted, direct
        direct.close()


def message(number: int, size: int = LARGE) -> bytes:
    return np.random.default_rng(number).bytes(size)


def family_of(end: MessageSocket) -> int:
    return end._socket.family


def test_messages_arrive_equal_and_in_order(listener: TransferListener) -> None:
    sizes = [LARGE, 5, 0, 40_000, LARGE, 1 << 15, (1 << 15) - 1]
    messages = [message(number, size) for number, size in enumerate(sizes)]
    with connected(listener) as (worker, direct):
        receiving = Receiving(direct)
        for one in messages:
            assert worker.send([one[:3], memoryview(one)[3:]]) == len(one)
        eventually(lambda: len(receiving.messages) == len(messages))
        direct.end()
        receiving.wait()
    assert receiving.messages == messages
    assert not receiving.errors


def test_only_large_messages_are_in_the_shared_memory(listener: TransferListener) -> None:
    with connected(listener) as (worker, direct):
        assert worker._writer is not None
        receiving = Receiving(direct)
        for size in ((1 << 15) - 1, 1 << 15):
            worker.send([message(size, size)])
        eventually(lambda: len(receiving.messages) == 2)
        assert bytes(worker._writer.data[: 1 << 15]) == message(1 << 15, 1 << 15)


def test_messages_use_the_socket_while_the_memory_is_full(listener: TransferListener) -> None:
    kept: list[memoryview] = []
    most = shared_region.REGION_BYTES // LARGE
    with connected(listener) as (worker, direct):
        receiving = Receiving(direct, kept.append)
        for number in range(most + 3):
            worker.send([message(number)])
        eventually(lambda: len(kept) == most + 3)
        assert [bytes(data) for data in kept] == [message(n) for n in range(most + 3)]
        # The places of the first messages are used again, and only these.
        del kept[:2]
        for number in range(3):
            worker.send([message(100 + number)])
        eventually(lambda: len(kept) == most + 4)
        expected = [*range(2, most + 3), 100, 101, 102]
        assert [bytes(data) for data in kept] == [message(n) for n in expected]
        assert not receiving.errors


def test_messages_that_are_kept_outlive_the_connection(listener: TransferListener) -> None:
    kept: list[memoryview] = []
    with connected(listener) as (worker, direct):
        Receiving(direct, kept.append)
        worker.send([message(1)])
        eventually(lambda: kept)
    del worker, direct
    assert bytes(kept[0]) == message(1)


@pytest.mark.parametrize("local", ["", "nothing-listens-here"])
def test_tcp_is_used_without_a_unix_socket(listener: TransferListener, local: str) -> None:
    with connected(listener, local) as (worker, direct):
        receiving = Receiving(direct)
        worker.send([message(1)])
        eventually(lambda: receiving.messages == [message(1)])
        assert family_of(worker) == socket.AF_INET
        assert worker._writer is None


def test_tcp_is_used_if_there_is_no_memory(
    listener: TransferListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "memfd_create", fail)
    with connected(listener) as (worker, _):
        assert family_of(worker) == socket.AF_INET


def test_a_worker_on_another_host_is_not_looked_for_on_this_one(
    listener: TransferListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def refuse(address: object, _timeout: float) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with offering(listener) as (offer, offered):
        direct = DirectTransfer("192.0.2.1")
        direct.connect(offered)
        wait_for_connecting()
        assert offer._accepted is None
    assert tried == [("192.0.2.1", listener.port)]


def local_socket(name: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(SECONDS)
    connected.connect(f"\0{name}")
    return connected


@pytest.mark.parametrize("ticket", [b"", bytes(31), bytes(32)])
def test_a_connection_without_a_ticket_is_refused(
    listener: TransferListener, ticket: bytes
) -> None:
    with offering(listener) as (offer, offered), local_socket(offered.local) as unknown:
        if ticket:
            unknown.sendall(ticket)
        unknown.shutdown(socket.SHUT_WR)
        assert unknown.recv(1) == b""
        assert offer._accepted is None


def test_a_ticket_with_other_memory_is_refused(listener: TransferListener) -> None:
    """A file that can be cut would end the worker when it writes."""
    descriptor = os.memfd_create("other")
    os.ftruncate(descriptor, 4096 + (1 << 16))
    with offering(listener) as (offer, offered), local_socket(offered.local) as unknown:
        socket.send_fds(unknown, [offered.ticket], [descriptor])
        assert unknown.recv(1) == b""
        assert offer._accepted is None
    os.close(descriptor)


def regions() -> set[str]:
    """Return the descriptors of this process that are regions."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it is closed meanwhile
            if "distributed-input" in os.readlink(f"/proc/self/fd/{descriptor}"):
                found.add(descriptor)
    return found


def test_a_connection_that_ends_releases_its_memory(listener: TransferListener) -> None:
    before = regions()
    with connected(listener) as (worker, direct):
        worker.send([message(1)])
        assert len(regions() - before) == 2, "one mapping on each side"
    del worker, direct
    eventually(lambda: not regions() - before)


@pytest.mark.parametrize("place", [1, 1 << 40, shared_region.REGION_BYTES])
def test_a_message_outside_of_the_memory_is_an_error(
    listener: TransferListener, place: int
) -> None:
    with connected(listener) as (worker, direct):
        receiving = Receiving(direct)
        worker._socket.sendall(struct.pack("<QQ", (1 << 63) | 100, place))
        receiving.wait()
    assert isinstance(receiving.errors[0], ValueError)


def test_shared_memory_is_refused_on_a_connection_without_it(listener: TransferListener) -> None:
    with connected(listener, "") as (worker, direct):
        receiving = Receiving(direct)
        worker._socket.sendall(struct.pack("<QQ", (1 << 63) | 100, 0))
        receiving.wait()
    assert isinstance(receiving.errors[0], ValueError)
