"""Access to dispatchers, and channels: kept while trainers read, closed after an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from distributed_input.api.proto.dispatcher_pb2 import StatusRequest, StatusResponse, WorkerInfo
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials
from distributed_input_operator import metrics
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.controller import channels as module
from distributed_input_operator.controller.channels import (
    CERTIFICATE_REFUSED,
    Channels,
    DispatcherAccess,
    operator_access,
)
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.objects.snapshot import Failure
from testing.certificates import LIFE, MountedFolder, authority, now
from tests.unit.distributed_input.runtime.served import Echo, served
from tests.unit.distributed_input_operator.controller.test_dispatchers import dispatchers

KEY = ("team", "digits")
OWN_CONNECTIONS = (("grpc.use_local_subchannel_pool", 1),)
"""Without it, gRPC may use a connection that another channel has just closed."""


class Server:
    """A dispatcher that records peers and tokens, and refuses one token."""

    def __init__(self) -> None:
        self.peers: list[str] = []
        self.tokens: list[str] = []
        self.requests: list[bytes] = []
        self.asked, self.release = asyncio.Event(), asyncio.Event()
        self.release.set()

    async def answer(self, request: bytes, context: Any) -> bytes:
        self.requests.append(request)
        token = dict(context.invocation_metadata())["authorization"]
        self.peers.append(context.peer())
        self.tokens.append(token)
        self.asked.set()
        await self.release.wait()
        if token == "Bearer bad":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
        return b""


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, str]]:
    recorded = Server()
    async with dispatchers(recorded.answer) as (address,):
        yield recorded, address


def token(text: str) -> Callable[[], DispatcherAccess]:
    return lambda: DispatcherAccess(token=text)


@pytest.mark.parametrize(("keep", "connections"), [(True, 1), (False, 3)])
async def test_a_channel_is_kept_on_request(keep, connections):
    async with serving() as (server, address):
        channels = Channels(OWN_CONNECTIONS)
        for _ in range(3):
            await channels.status(KEY, address, token("a"), keep=keep)
        assert len(set(server.peers)) == connections
        assert len(channels) == keep


async def test_a_request_asks_for_one_skipped_record():
    """A thousand of them, every few seconds, would occupy the operator."""
    async with serving() as (server, address):
        await Channels(OWN_CONNECTIONS).status(KEY, address, token("a"), keep=False)
        assert [StatusRequest.FromString(one).max_skipped for one in server.requests] == [1]


async def test_a_request_that_keeps_no_channel_ends_the_kept_one():
    async with serving() as (_, address):
        channels = Channels(OWN_CONNECTIONS)
        for keep in (True, False):
            await channels.status(KEY, address, token("a"), keep=keep)
        assert len(channels) == 0


async def test_a_kept_channel_uses_the_present_token():
    async with serving() as (server, address):
        channels = Channels(OWN_CONNECTIONS)
        for text in ("a", "b"):
            await channels.status(KEY, address, token(text), keep=True)
        assert server.tokens == ["Bearer a", "Bearer b"]


async def test_an_error_another_address_and_close_end_a_channel():
    async with serving() as (server, address):
        channels = Channels(OWN_CONNECTIONS)
        await channels.status(KEY, address, token("a"), keep=True)
        with pytest.raises(grpc.aio.AioRpcError):
            await channels.status(KEY, address, token("bad"), keep=True)
        assert len(channels) == 0
        await channels.status(KEY, address, token("a"), keep=True)
        await channels.status(KEY, address.replace("127.0.0.1", "localhost"), token("a"), keep=True)
        assert len(set(server.peers)) == 3
        channels.close(KEY)
        assert len(channels) == 0


async def test_a_channel_is_closed_when_its_request_has_ended():
    """gRPC would cancel the request, and its caller with it."""

    async with serving() as (server, address):
        channels = Channels(OWN_CONNECTIONS)
        server.release.clear()
        asking = asyncio.create_task(channels.status(KEY, address, token("a"), keep=True))
        await asyncio.wait_for(server.asked.wait(), 20)
        kept = channels._kept[KEY].channel
        channels.close(KEY)
        await settled(channels)
        assert len(channels) == 0
        server.release.set()
        assert await asking == b""
        await settled(channels)
        assert kept.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def settled(channels: Channels) -> None:
    """Wait until all channels that are to be closed are closed."""
    if channels._closing:
        await asyncio.wait(set(channels._closing), timeout=20)


async def test_more_channels_than_the_maximum_are_not_kept():
    async with serving() as (server, address):
        channels = Channels(OWN_CONNECTIONS, most=1)
        for name in ("a", "b", "a", "b"):
            await channels.status(("team", name), address, token("a"), keep=True)
        assert len(channels) == 1
        assert len(set(server.peers)) == 3


@pytest.mark.parametrize(
    ("files", "most"), [(1024, 512), (65_536, 2500), (module.resource.RLIM_INFINITY, 2500)]
)
def test_channels_take_at_most_half_of_the_files(monkeypatch, files, most):
    monkeypatch.setattr(module.resource, "getrlimit", lambda _: (files, files))
    assert Channels(OWN_CONNECTIONS)._most == most


async def test_the_gauge_has_the_number_of_kept_channels():
    def value() -> float:
        (family,) = metrics.CHANNELS.collect()
        return family.samples[0].value

    async with serving() as (_, address):
        channels = Channels(OWN_CONNECTIONS)
        for name in ("a", "b", "a"):
            await channels.status(("team", name), address, token("a"), keep=True)
        assert value() == 2
        channels.close(("team", "a"))
        assert value() == 1
        with pytest.raises(grpc.aio.AioRpcError):
            await channels.status(("team", "b"), address, token("bad"), keep=True)
        assert value() == 0


async def test_a_channel_with_a_certificate_ends_before_the_certificate(monkeypatch):
    async with serving() as (_, address):
        now, issued = 0.0, []
        monkeypatch.setattr(
            DispatcherAccess,
            "channel",
            lambda _, at, options: grpc.aio.insecure_channel(at, options),
        )
        channels = Channels(OWN_CONNECTIONS, clock=lambda: now)

        def access() -> DispatcherAccess:
            issued.append(now)
            return DispatcherAccess(token="a", chain="PEM")

        for now in (0.0, 200.0, 299.0, 300.0, 500.0):  # noqa: B007 - the clock reads it
            await channels.status(KEY, address, access, keep=True)
        assert issued == [0.0, 300.0]

    assert module._MAX_SECONDS == 300.0


ANSWER = StatusResponse(dispatcher_id="d", workers=[WorkerInfo(worker_id="w", rows=1)])


@asynccontextmanager
async def dispatcher(folder: Path) -> AsyncIterator[str]:
    credentials = TlsCredentials(CertificateFolder(MountedFolder(folder).issue("dispatcher")))
    with served(Echo(Status=lambda request, context: ANSWER), credentials) as server:
        yield server.address


def access_of(one: InputAuthority) -> Callable[[], DispatcherAccess]:
    return lambda: operator_access(one, now(), LIFE)


def measured(folder: Path, access: Callable[[], DispatcherAccess]) -> tuple[bool, Failure | None]:
    """Return whether a dispatcher of the input u-1 could be measured, and the problem."""

    async def story() -> tuple[bool, Failure | None]:
        client = DispatcherClient()
        async with dispatcher(folder) as address:
            found = await client.measure(KEY, "u-1", address, access)
        return found is not None, client.problem(KEY)

    return asyncio.run(story())


def test_an_encrypted_dispatcher_is_measured(tmp_path: Path) -> None:
    assert measured(tmp_path, access_of(authority())) == (True, None)


def test_a_dispatcher_with_keys_of_another_operator_is_a_problem_with_a_remedy(
    tmp_path: Path,
) -> None:
    _, problem = measured(tmp_path, access_of(authority(master=32 * b"x")))
    assert problem is not None
    assert problem.reason == CERTIFICATE_REFUSED
    assert "delete the Secret" in problem.message


def test_a_dispatcher_of_another_input_is_not_trusted(tmp_path: Path) -> None:
    _, problem = measured(tmp_path, access_of(authority("u-2")))
    assert problem is not None
    assert problem.reason == CERTIFICATE_REFUSED


def test_secrets_are_not_in_its_text() -> None:
    access = operator_access(authority(), now(), LIFE)
    assert "PRIVATE" not in repr(access)
    assert "secret" not in repr(DispatcherAccess(token="secret"))
