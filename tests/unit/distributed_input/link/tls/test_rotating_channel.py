"""New calls use the newest certificate; running calls keep theirs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from distributed_input.api.identity import DISPATCHER, OPERATOR, SIDECAR, WORKER
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls.rotating_channel import RotatingChannel
from distributed_input.link.tls_credentials import TlsCredentials
from testing.certificates import MountedFolder
from tests.unit.distributed_input.runtime.served import Echo, served, stub_of

CHUNK = dispatcher_pb2.DatasetChunk(data=b"x")


class Rotated:
    """Credentials whose certificate a test renews."""

    def __init__(self, path: Path, role: str) -> None:
        self.role, self.seconds = role, 0.0
        self.mounted = MountedFolder(path / role)
        folder = CertificateFolder(self.mounted.issue(role), lambda: self.seconds)
        self.credentials = TlsCredentials(folder)

    def renew(self) -> None:
        self.mounted.issue(self.role)
        self.seconds += 2


def test_a_stream_survives_renewals_and_new_calls_use_another_connection(tmp_path: Path) -> None:
    go_on = threading.Event()
    peers: list[str] = []

    def chunks(request: Any, context: Any) -> Any:
        peers.append(context.peer())
        yield CHUNK
        assert go_on.wait(10)
        yield CHUNK

    echo = Echo(GetDataset=chunks)
    server, client = Rotated(tmp_path, DISPATCHER), Rotated(tmp_path, WORKER)
    with served(echo, server.credentials) as at, stub_of(at.address, client.credentials) as stub:
        stream = stub.GetDataset(dispatcher_pb2.GetDatasetRequest(), timeout=20)
        assert next(stream) == CHUNK
        for side in (server, client):
            side.renew()
        other = stub.GetDataset(dispatcher_pb2.GetDatasetRequest(), timeout=20)
        assert next(other) == CHUNK
        go_on.set()
        assert list(stream) == list(other) == [CHUNK]
    assert len(set(peers)) == 2


@pytest.mark.parametrize("shape", ["blocking", "with_call", "future", "requests"])
def test_every_shape_of_call_uses_a_renewed_certificate(tmp_path: Path, shape: str) -> None:
    peers: list[str] = []

    def answer(_request: Any, context: Any) -> Any:
        peers.append(context.peer())
        if shape == "requests":
            list(_request)
            return dispatcher_pb2.PutDatasetResponse()
        return dispatcher_pb2.StatusResponse()

    role = SIDECAR if shape == "requests" else OPERATOR
    server, client = Rotated(tmp_path, DISPATCHER), Rotated(tmp_path, role)
    echo = Echo(Status=answer, PutDataset=answer)
    request = dispatcher_pb2.StatusRequest()
    with served(echo, server.credentials) as at, stub_of(at.address, client.credentials) as stub:
        calls = {
            "blocking": lambda: stub.Status(request, timeout=10),
            "with_call": lambda: stub.Status.with_call(request, timeout=10),
            "future": lambda: stub.Status.future(request, timeout=10).result(),
            "requests": lambda: stub.PutDataset(iter([CHUNK]), timeout=10),
        }
        for _ in range(2):
            calls[shape]()
        client.renew()
        calls[shape]()
    assert peers[0] == peers[1] != peers[2]


class FakeChannel:
    """Records what is closed. Its calls end when a test ends them."""

    def __init__(self) -> None:
        self.closed = False
        self.ended: list[Any] = []

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return lambda request, **options: self

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        def fail(request: Any, **options: Any) -> Any:
            raise grpc.RpcError

        return fail

    def add_callback(self, callback: Any) -> bool:
        self.ended.append(callback)
        return True

    def close(self) -> None:
        self.closed = True


class FakeFolder:
    def __init__(self) -> None:
        self.certificate = object()

    def current(self) -> Any:
        return self.certificate


def test_the_channel_before_is_closed_after_its_last_call() -> None:
    opened: list[FakeChannel] = []
    folder: Any = FakeFolder()

    def open_channel(_certificate: Any) -> Any:
        opened.append(FakeChannel())
        return opened[-1]

    channel = RotatingChannel(folder, open_channel)
    call = channel.unary_stream("/m")
    call(b"")
    call(b"")
    folder.certificate = object()
    call(b"")
    assert [one.closed for one in opened] == [False, False]
    opened[0].ended[0]()
    call(b"")
    assert not opened[0].closed
    opened[0].ended[1]()
    call(b"")
    assert [one.closed for one in opened] == [True, False]
    channel.close()
    assert opened[1].closed


def test_a_call_that_fails_does_not_keep_its_channel() -> None:
    opened: list[FakeChannel] = []
    folder: Any = FakeFolder()

    def open_channel(_certificate: Any) -> Any:
        opened.append(FakeChannel())
        return opened[-1]

    with RotatingChannel(folder, open_channel) as channel:
        for _ in range(2):
            with pytest.raises(grpc.RpcError):
                channel.stream_stream("/m")(b"")
            folder.certificate = object()
        with pytest.raises(grpc.RpcError):
            channel.stream_stream("/m")(b"")
        assert [one.closed for one in opened] == [True, True, False]
    assert opened[2].closed
