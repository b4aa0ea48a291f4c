"""The operator calls dispatchers with a token or a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from distributed_input.api.proto.dispatcher_pb2 import StatusResponse, WorkerInfo
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.controller.dispatcher_access import (
    CERTIFICATE_REFUSED,
    DispatcherAccess,
    operator_access,
)
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.objects.snapshot import Failure
from testing.certificates import LIFE, MountedFolder, authority, now
from tests.unit.distributed_input.runtime.served import Echo, served

KEY = ("team", "digits")
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
