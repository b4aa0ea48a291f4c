"""Both ends of each protocol against each other, over a network that ends anywhere.

What arrives before the cut are the first rows or messages that were sent, in order and once. Each
end learns of the cut, and then holds nothing of the other one. A new connection brings the rest.

This module is long because the protocols share one law, and the network that breaks it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from distributed_input.api.errors import DistributedInputError, RetryableError, UnavailableError
from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link import serving, stubs
from distributed_input.link.blocks import direct_reader, direct_sender
from distributed_input.link.blocks.direct_reader import DirectTransfer
from distributed_input.link.blocks.direct_sender import TransferListener
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.blocks.open_streams import OpenStreams, StreamCounters
from distributed_input.link.blocks.reader import SplitCall, WorkerConnection
from distributed_input.link.blocks.sender import Connection
from distributed_input.link.credentials import Credentials
from distributed_input.link.errors import Cancelled
from distributed_input.link.heartbeats.dispatcher_client import DispatcherClient
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.trainer import packet_socket
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.link.trainer.trainer_end import Channel, SidecarDisconnected
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import DIGEST_VERSION, Prefix
from testing.certificates import MountedFolder
from testing.chaos.proxy import Loop, Proxy
from tests.unit.distributed_input.sidecar.system import eventually
from tests.unit.distributed_input.worker.streams.blockcases import block_of, end_of, rows_in

SECONDS = 60.0
STREAMS, ROWS, BLOCK_ROWS, CREDIT = 3, 2000, 50, 4096
WORKER = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
DISPATCHER = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]


# The stream of blocks.


class Rows:
    """A stage: the rows of a split from a row on.

    Attributes:
        open: the stages that are not closed.
    """

    open: ClassVar[set[Rows]] = set()

    def __init__(
        self, request: worker_pb2.StreamRequest, _: StreamCounters, wake: Callable[[], None]
    ) -> None:
        self._row: int | None = request.start_row
        self.open.add(self)

    def next(self, limit: int, /) -> list[RowBlock]:
        at = self._row
        if at is None or limit <= 0:
            return []
        more = min(BLOCK_ROWS, ROWS - at)
        self._row = at + more if more else None
        return [block_of(at, more) if more else end_of(at)]

    def state(self) -> Prefix:
        raise NotImplementedError

    def close(self) -> None:
        self.open.discard(self)


class Worker:
    """The worker's end of the stream of blocks, behind real gRPC."""

    def __init__(self, certificates: CertificateFolder | None, direct: bool) -> None:
        self.streams = OpenStreams(100)
        handler = stubs.service_handler(WORKER, self)
        self.server = serving.make_server([handler], "127.0.0.1:0", Credentials())
        self.listener = TransferListener(self.server.address, certificates) if direct else None
        if self.listener is not None:
            self.listener.start()
        self.server.start()

    def Describe(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def Connect(self, requests: Any, context: Any) -> Iterator[bytes]:  # noqa: N802
        connection = Connection(Rows, self.streams)
        try:
            yield from direct_sender.serve(connection, requests, context, self.listener)
        finally:
            connection.close()

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()
        self.server.stop(0)


class Receiver:
    """Takes the rows of one stream and grants credit for more, until it fails or ends."""

    def __init__(self, split: int) -> None:
        self.split = split
        self.rows: list[int] = []
        self.errors: list[DistributedInputError] = []
        self.over = threading.Event()
        self._cost = 0

    def begin(self) -> None:
        """Forget the connection before."""
        self.over.clear()
        self.errors.clear()
        self._cost = 0

    def request(self) -> worker_pb2.StreamRequest:
        return worker_pb2.StreamRequest(
            split=self.split,
            start_row=len(self.rows),
            protocol=PROTOCOL,
            digest_version=DIGEST_VERSION,
        )

    def receive(self, call: SplitCall, block: RowBlock) -> None:
        assert not self.errors, "rows after the error"
        assert block.first_row == len(self.rows)
        self.rows += rows_in([block]) if block.rows else []
        self._cost += block.cost
        call.grant(self._cost + CREDIT)
        if block.last:
            self.over.set()

    def fail(self, _call: SplitCall, error: DistributedInputError, _explained: bool) -> None:
        self.errors.append(error)
        self.over.set()


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a direct connection begin on a machine without CPU time, or end it at once."""
    monkeypatch.setattr(direct_reader, "_CONNECT_SECONDS", SECONDS)
    monkeypatch.setattr(direct_sender, "_TICKET_SECONDS", SECONDS)
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 0.05)


class Network:
    """A worker, and the proxies between it and a sidecar."""

    def __init__(self, loop: Loop, folder: Path, transport: str) -> None:
        tls, direct = transport == "TLS", transport not in ("gRPC", "requests")
        certificates = [
            CertificateFolder(MountedFolder(folder / role).issue(role)) if tls else None
            for role in ("worker", "sidecar")
        ]
        self.worker = Worker(certificates[0], direct)
        self._sidecar, self._direct = certificates[1], direct
        self.calls = Proxy(loop, counts_requests=transport == "requests")
        self.transfers = Proxy(loop)
        self.cutting = self.transfers if direct else self.calls
        self.calls.upstream = self.worker.server.address
        if self.worker.listener is not None:
            if transport != "memory":
                self.worker.listener.local = ""  # no shared memory is offered
            self.transfers.upstream = f"127.0.0.1:{self.worker.listener.port}"
            self.worker.listener.port = int(self.transfers.address.rpartition(":")[2])

    def has_moved(self) -> bool:
        """Return whether the worker has a direct connection, or cannot get one."""
        listener = self.worker.listener
        if listener is None or self.cutting.cuts:
            return True
        return any(offer._accepted is not None for offer in list(listener._open))

    def read(self, receivers: list[Receiver]) -> None:
        """Read the rest of all splits over a new connection, until each stream is over."""
        address = self.calls.address
        options = (("grpc.enable_retries", 0),)
        channel = serving.open_channel(address, Credentials(), private=True, options=options)
        direct = DirectTransfer(address, self._sidecar) if self._direct else None
        stub = stubs.Stub(channel, WORKER)
        connection = WorkerConnection(stub, "w", direct)
        calls = []
        for one in receivers:
            one.begin()
            calls.append(connection.open(one.request(), 0, one))
        eventually(self.has_moved, SECONDS)
        for call in calls:
            call.grant(CREDIT)
        for one in receivers:
            assert one.over.wait(SECONDS)
        connection._end(UnavailableError("the reader leaves"), explained=False)
        channel.close()

    def close(self) -> None:
        self.worker.close()


def left_over() -> list[str]:
    names = ("transfer-connect", "transfer-ticket", "worker-w", "requests")
    return [one.name for one in threading.enumerate() if one.name in names]


BYTES = STREAMS * ROWS * 8
CUTS = {
    **dict.fromkeys(("gRPC", "TCP", "TLS"), (1, 30, 500, 3000, BYTES // 5, BYTES // 2, BYTES)),
    "requests": (1, 60, 300, 800, 1000),
}
"""Bytes after which the connection is cut: what a worker sends, or a sidecar."""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("transport", "cut"), [(transport, cut) for transport in CUTS for cut in CUTS[transport]]
)
def test_rows_arrive_once_over_a_connection_that_is_cut(
    loop: Loop, tmp_path: Path, transport: str, cut: int
) -> None:
    network = Network(loop, tmp_path, transport)
    network.cutting.cut_after(cut)
    receivers = [Receiver(split) for split in range(STREAMS)]
    network.read(receivers)
    assert network.cutting.cuts == 1
    check_rest(network, receivers)


class CutMemory(MessageSocket):
    """The sidecar's end of shared memory, which ends after some messages."""

    left = 0

    def receive(self) -> memoryview | None:
        type(self).left -= 1
        if not self.left:
            self.shut_down()
        return super().receive()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("messages", [1, 2, 5, 9])
def test_rows_arrive_once_over_memory_that_is_cut(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    monkeypatch.setattr(direct_reader, "MessageSocket", CutMemory)
    monkeypatch.setattr(CutMemory, "left", messages)
    network = Network(loop, tmp_path, "memory")
    receivers = [Receiver(split) for split in range(STREAMS)]
    network.read(receivers)
    assert CutMemory.left <= 0
    check_rest(network, receivers)


def check_rest(network: Network, receivers: list[Receiver]) -> None:
    """Check what has arrived, read the rest over a new connection, and check what is left."""
    for one in receivers:
        assert one.rows == list(range(len(one.rows)))
        assert all(isinstance(error, RetryableError) for error in one.errors)
        assert len(one.errors) <= 1
        assert one.errors or len(one.rows) == ROWS
    network.read([one for one in receivers if one.errors])
    assert [one.rows for one in receivers] == [list(range(ROWS))] * STREAMS
    eventually(network.worker.streams.idle.is_set, SECONDS)
    eventually(lambda: not Rows.open, SECONDS)
    eventually(lambda: not left_over(), SECONDS)
    network.close()


# The trainer's socket.


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    listener = packet_socket.new()
    listener.bind(str(tmp_path / SOCKET_NAME))
    listener.listen()
    listener.settimeout(SECONDS)
    yield listener
    listener.close()


@contextlib.contextmanager
def connected(folder: Path, listener: socket.socket) -> Iterator[tuple[Channel, TrainerSocket]]:
    """Yield both ends of a connection, with shared memory of 64 slots of 64 bytes."""
    channel = Channel(folder, SECONDS)
    theirs, _ = listener.accept()
    theirs.settimeout(0.05)
    (folder / "slots").write_bytes(bytes(64 * 64))
    channel.map_slots("slots", 64 * 64)
    yield channel, TrainerSocket(theirs)
    channel._socket.close()
    theirs.close()


def unit(number: int) -> trainer_pb2.FromSidecar:
    slot = 64 * number
    return trainer_pb2.FromSidecar(
        unit=trainer_pb2.Unit(generation=1, slot=slot, rows=8, offsets=[slot], sizes=[64])
    )


def received(channel: Channel) -> Iterator[int]:
    """Yield the slots of the units that arrive, until the sidecar is gone."""
    with contextlib.suppress(SidecarDisconnected):
        while (message := channel.receive(SECONDS)) is not None:
            channel.batch(message.unit)  # nothing refers to it: the slot is released
            yield message.unit.slot
        pytest.fail("the end was not noticed")


def released(sidecar: TrainerSocket) -> list[int]:
    """Return the slots that come back, until the trainer is gone."""
    slots: list[int] = []
    while packet := sidecar.receive():
        slots += trainer_pb2.FromTrainer.FromString(packet).release.slots
    return slots


@pytest.mark.parametrize("units", [0, 1, 5, 64])
def test_a_trainer_gets_the_units_that_a_sidecar_sent_before_it_ended(
    tmp_path: Path, listener: socket.socket, units: int
) -> None:
    with connected(tmp_path, listener) as (channel, sidecar):
        for number in range(units):
            sidecar.send(unit(number), threading.Event())
        sidecar.close()
        assert list(received(channel)) == [64 * number for number in range(units)]
        with pytest.raises(Cancelled):
            sidecar.send(unit(0), threading.Event())
    with connected(tmp_path, listener) as (channel, sidecar):
        sidecar.send(unit(7), threading.Event())
        message = channel.receive(SECONDS)
        assert message is not None
        assert message.unit.slot == 7 * 64


@pytest.mark.parametrize("taken", [0, 1, 5, 64])
def test_a_sidecar_gets_each_slot_once_that_a_trainer_released_before_it_ended(
    tmp_path: Path, listener: socket.socket, taken: int
) -> None:
    with connected(tmp_path, listener) as (channel, sidecar):
        for number in range(64):
            sidecar.send(unit(number), threading.Event())
        for _ in range(taken):
            message = channel.receive(SECONDS)
            assert message is not None
            channel.batch(message.unit)
        channel.shutdown()
        channel.drop_unread()
        channel._socket.close()
        assert sorted(released(sidecar)) == [64 * number for number in range(64)]


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 40, 95, 96])
def test_a_packet_that_is_cut_off_is_the_end(cut: int) -> None:
    """Where the system has no sockets of packets, a stream carries them with their lengths."""
    with contextlib.ExitStack() as stack:

        def pair() -> tuple[socket.socket, socket.socket]:
            first, second = socket.socketpair()
            return stack.enter_context(first), stack.enter_context(second)

        def packets_of(stream: socket.socket) -> socket.socket:
            return stack.enter_context(packet_socket.StreamOfPackets(fileno=stream.detach()))

        ours, theirs = pair()
        sending = packets_of(ours)
        sending.send(b"a" * 40)
        sending.send(b"b" * 48)
        data = theirs.recv(200)
        assert len(data) == 96
        ours, theirs = pair()
        ours.sendall(data[:cut])
        ours.close()
        reading = packets_of(theirs)
        packets = list(iter(lambda: reading.recv(100), b""))
    assert packets == [b"a" * 40, b"b" * 48][: (cut >= 44) + (cut >= 96)]


# Heartbeats.


class Dispatcher:
    """Answers heartbeats with their number of rows."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def ConsumerHeartbeat(  # noqa: N802
        self, request: dispatcher_pb2.ConsumerHeartbeatRequest, _context: Any
    ) -> dispatcher_pb2.ConsumerHeartbeatResponse:
        self.rows.append(request.rows)
        assert len(request.waiting_for) == 5000
        return dispatcher_pb2.ConsumerHeartbeatResponse(contradiction="y" * 5000)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: pytest.fail(name)


@pytest.mark.parametrize("requests", [False, True], ids=["answers", "requests"])
@pytest.mark.parametrize("cut", [1, 40, 400, 4000, 11_000])
def test_heartbeats_continue_after_one_that_was_cut_off(
    loop: Loop, requests: bool, cut: int
) -> None:
    dispatcher, proxy = Dispatcher(), Proxy(loop, counts_requests=requests)
    server = serving.make_server(
        [stubs.service_handler(DISPATCHER, dispatcher)], "127.0.0.1:0", Credentials()
    )
    server.start()
    proxy.upstream = server.address
    proxy.cut_after(cut)
    client = DispatcherClient(proxy.address, Credentials(), threading.Event())
    begun, answered = itertools.count(), []

    def beat() -> Any:
        number = next(begun)
        request = dispatcher_pb2.ConsumerHeartbeatRequest(rows=number, waiting_for="x" * 5000)
        answer = client.heartbeat(request, timeout=SECONDS)
        assert len(answer.contradiction) == 5000
        answered.append(number)

    for _ in range(5):
        client.retry(beat, time.monotonic() + SECONDS, "heartbeat")
    assert proxy.cuts == 1
    assert set(answered) <= set(dispatcher.rows)
    assert len(dispatcher.rows) == len(set(dispatcher.rows))
    client.close()
    server.stop(0)
