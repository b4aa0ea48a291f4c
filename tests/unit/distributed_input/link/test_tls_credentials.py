"""Real servers with certificates, and peers that they must refuse."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2

from distributed_input.api import files, identity
from distributed_input.api.environment import TOKEN_ENV
from distributed_input.api.errors import TerminalError, UnavailableError
from distributed_input.api.identity import ALLOWED, DISPATCHER, OPERATOR, ROLES, SIDECAR, WORKER
from distributed_input.api.proto import dispatcher_pb2, worker_pb2
from distributed_input.link import serving, statuses, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials, credentials_of
from distributed_input.runtime import addresses
from distributed_input_operator.certificates.renewal import renewed
from testing.certificates import LIFE, MountedFolder, authority, now
from testing.issuer import PlatformRoot
from tests.unit.distributed_input.runtime.served import HEALTH

SERVICES = {
    DISPATCHER: dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"],
    WORKER: worker_pb2.DESCRIPTOR.services_by_name["Worker"],
}
METHODS = [(role, method.name) for role, service in SERVICES.items() for method in service.methods]


class EmptyService:
    """A service that answers with empty messages and streams, and records its calls."""

    def __init__(self, role: str) -> None:
        self.calls: list[str] = []
        for method in SERVICES[role].methods:
            setattr(self, method.name, self._answer(method))

    def _answer(self, method: Any) -> Callable[[Any, Any], Any]:
        empty = message_factory.GetMessageClass(method.output_type)()

        def answer(_request: Any, _context: Any) -> Any:
            self.calls.append(method.name)
            return iter(()) if method.server_streaming else empty

        return answer


ISSUER = PlatformRoot().issuer()


class Port:
    """A server of a role of the input u-1, whose authority an issuer has signed."""

    def __init__(self, role: str, folder: Path) -> None:
        self.role, self.service = role, EmptyService(role)
        self.mounted = MountedFolder(folder / f"server-{role}")
        self.mounted.issue_signed(role, ISSUER)
        credentials = TlsCredentials(CertificateFolder(self.mounted.path))
        handler = stubs.service_handler(SERVICES[role], self.service)
        self.server = serving.make_server([handler], "127.0.0.1:0", credentials)
        self.server.start()

    def call(self, method: str, credentials: Credentials) -> Any:
        """Call a method with an empty request. Raise grpc.RpcError."""
        descriptor = SERVICES[self.role].methods_by_name[method]
        with serving.open_channel(
            self.server.address, credentials, server=self.role, private=True
        ) as channel:
            call = getattr(stubs.Stub(channel, SERVICES[self.role]), method)
            empty = message_factory.GetMessageClass(descriptor.input_type)()
            answer = call(iter([empty]) if descriptor.client_streaming else empty, timeout=10)
            return list(answer) if descriptor.server_streaming else answer


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Port]]:
    folder = tmp_path_factory.mktemp("ports")
    found = {role: Port(role, folder) for role in SERVICES}
    yield found
    for port in found.values():
        port.server.stop(0)


def client(folder: Path, role: str, **issued: Any) -> TlsCredentials:
    """Return the credentials of a role."""
    return TlsCredentials(CertificateFolder(MountedFolder(folder / role).issue(role, **issued)))


class Signed:
    """Credentials of inputs whose authorities one issuer has signed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, role: str, uid: str = "u-1") -> TlsCredentials:
        mounted = MountedFolder(self._folder / f"{uid}-{role}")
        return TlsCredentials(CertificateFolder(mounted.issue_signed(role, ISSUER, authority(uid))))


def test_inputs_with_the_same_issuer_do_not_accept_each_other(tmp_path: Path) -> None:
    """The client refuses the server here. REFUSED has a client that does not."""
    signed = Signed(tmp_path)
    service = EmptyService(WORKER)
    handler = stubs.service_handler(SERVICES[WORKER], service)
    server = serving.make_server([handler], "127.0.0.1:0", signed(WORKER))
    server.start()
    try:

        def describe(credentials: Credentials) -> grpc.StatusCode:
            with serving.open_channel(
                server.address, credentials, server=WORKER, private=True
            ) as channel:
                try:
                    stubs.Stub(channel, SERVICES[WORKER]).Describe(
                        worker_pb2.DescribeRequest(), timeout=10
                    )
                except grpc.RpcError as error:
                    return error.code()
            return grpc.StatusCode.OK

        assert describe(signed(SIDECAR)) is grpc.StatusCode.OK
        assert describe(client(tmp_path, SIDECAR)) is grpc.StatusCode.OK, "before it was signed"
        assert service.calls == 2 * ["Describe"]
        assert describe(signed(SIDECAR, "u-2")) is grpc.StatusCode.UNAVAILABLE
        assert service.calls == 2 * ["Describe"]
    finally:
        server.stop(0)


class Stranger(TlsCredentials):
    """Presents any certificate, also one that is unusable, and trusts the authority of u-1."""

    def __init__(self, chain: str | None, key: str | None) -> None:
        self._chain, self._key = chain, key

    def channel(
        self, address: str, options: Any = (), server: str = identity.DISPATCHER
    ) -> grpc.Channel:
        one = authority()
        pair = [part.encode() if part else None for part in (self._key, self._chain)]
        credentials = grpc.ssl_channel_credentials(one.certificate.encode(), *pair)
        name = ("grpc.ssl_target_name_override", one.identity(server).server_name)
        return grpc.secure_channel(address, credentials, options=[*options, name])


def peer(kind: str) -> Credentials:
    """Return the credentials of a peer that must be refused by every method."""
    one, other = authority(), authority("u-2")
    match kind:
        case "plain text":
            return Credentials.from_args(None, {TOKEN_ENV: "secret"})
        case "no certificate":
            return Stranger(None, None)
        case "expired":
            return Stranger(one.issue(SIDECAR, now() - 2 * LIFE, LIFE), one.key(SIDECAR))
        case "of another input":
            return Stranger(other.issue(SIDECAR, now(), LIFE), other.key(SIDECAR))
        case "of another input, with the same issuer":
            data = renewed(other, {}, now(), LIFE, ISSUER).data
            return Stranger(data[files.certificate(SIDECAR)], other.key(SIDECAR))
        case _:
            raise AssertionError(kind)


REFUSED = [
    *("plain text", "no certificate", "expired", "of another input"),
    "of another input, with the same issuer",
]


@pytest.mark.parametrize("role", SERVICES)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_peer_without_a_valid_certificate_reaches_no_method(
    ports: dict[str, Port], role: str, kind: str
) -> None:
    port = ports[role]
    before = list(port.service.calls)
    for method in SERVICES[role].methods:
        with pytest.raises(grpc.RpcError) as caught:
            port.call(method.name, peer(kind))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert port.service.calls == before


@pytest.mark.parametrize(("role", "method"), METHODS)
def test_a_method_accepts_exactly_the_roles_of_the_table(
    ports: dict[str, Port], tmp_path: Path, role: str, method: str
) -> None:
    path = f"/{SERVICES[role].full_name}/{method}"
    for caller in ROLES:
        before = len(ports[role].service.calls)
        if caller in ALLOWED[path]:
            ports[role].call(method, client(tmp_path, caller))
            assert ports[role].service.calls[before:] == [method]
            continue
        with pytest.raises(grpc.RpcError) as caught:
            ports[role].call(method, client(tmp_path, caller))
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert f"the role {caller} may not use {path}" in str(caught.value.details())
        assert isinstance(statuses.from_rpc_error(caught.value, "calling"), TerminalError)
        assert len(ports[role].service.calls) == before


def test_an_authority_of_several_inputs_does_not_connect_them(tmp_path: Path) -> None:
    """An issuer that is not the operator may sign for several inputs."""
    one = authority()
    shared = authority("u-2")
    shared._key, shared._name = one._key, one._name
    port = Port(DISPATCHER, tmp_path)
    try:
        stranger = Stranger(shared.issue(SIDECAR, now(), LIFE), shared.key(SIDECAR))
        with pytest.raises(grpc.RpcError) as caught:
            port.call("RegisterJob", stranger)
    finally:
        port.server.stop(0)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "uid u-2" in str(caught.value.details())


@pytest.mark.parametrize("other", [WORKER, SIDECAR])
def test_a_server_of_another_role_is_not_trusted(tmp_path: Path, other: str) -> None:
    """A worker cannot take the place of the dispatcher, nor can a sidecar."""
    mounted = MountedFolder(tmp_path / "server").issue(other)
    server = serving.make_server(
        [stubs.service_handler(SERVICES[DISPATCHER], EmptyService(DISPATCHER))],
        "127.0.0.1:0",
        TlsCredentials(CertificateFolder(mounted)),
    )
    server.start()
    try:
        with serving.open_channel(
            server.address, client(tmp_path, SIDECAR), private=True
        ) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                stubs.Stub(channel, SERVICES[DISPATCHER]).GetJob(
                    dispatcher_pb2.GetJobRequest(), timeout=10
                )
    finally:
        server.stop(0)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_health_needs_a_certificate_of_the_input(ports: dict[str, Port], tmp_path: Path) -> None:
    address = ports[DISPATCHER].server.address
    for credentials, accepted in (
        (client(tmp_path, SIDECAR), True),
        (peer("no certificate"), False),
    ):
        with serving.open_channel(address, credentials, private=True) as channel:
            check = stubs.Stub(channel, HEALTH).Check
            if accepted:
                check(health_pb2.HealthCheckRequest(), timeout=10)
            else:
                with pytest.raises(grpc.RpcError):
                    check(health_pb2.HealthCheckRequest(), timeout=10)


def test_a_renewed_server_certificate_is_used_for_new_connections(
    ports: dict[str, Port], tmp_path: Path
) -> None:
    port = ports[DISPATCHER]
    operator = client(tmp_path, OPERATOR)
    port.call("Status", operator)
    first = _server_serial(port, operator)
    port.mounted.issue(DISPATCHER)
    deadline = time.monotonic() + 10
    while _server_serial(port, operator) == first:
        assert time.monotonic() < deadline
        time.sleep(0.1)  # the folder is read once per second
    port.call("Status", operator)


def _server_serial(port: Port, credentials: TlsCredentials) -> str:
    host, number = addresses.parse(port.server.address)
    current = credentials.certificates.current()
    name = current.own.with_role(port.role).server_name
    with socket.create_connection((host, number), 10) as plain:
        with current.client_context.wrap_socket(plain, server_hostname=name) as secured:
            assert secured.version() == "TLSv1.3"
            found = secured.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


def test_a_folder_without_certificate_is_no_reason_to_use_a_token(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        credentials_of(tmp_path, None, {TOKEN_ENV: "secret"})
