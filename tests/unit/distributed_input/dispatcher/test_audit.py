"""The audit log of real calls: who registered which dataset."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.identity import DISPATCHER, SIDECAR
from distributed_input.api.proto import dispatcher_pb2 as wire
from distributed_input.api.proto.types_pb2 import EntryPoint
from distributed_input.dispatcher import service as served
from distributed_input.dispatcher.clock import RunningClock
from distributed_input.link import serving, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials
from distributed_input.runtime import logs
from testing.certificates import MountedFolder, authority
from tests.unit.distributed_input.dispatcher.builders import job, state

DATA = b"a graph with the password hunter22"
FINGERPRINT = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Collect the lines that the process logs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter("dispatcher"))
    root = logging.getLogger("distributed_input")
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def credentials(folder: Path, role: str, *, encrypted: bool) -> Any:
    if not encrypted:
        return Credentials()
    return TlsCredentials(CertificateFolder(MountedFolder(folder / role).issue(role)))


@pytest.mark.parametrize("encrypted", [False, True])
def test_each_registration_has_its_peer_and_fingerprint(
    encrypted: bool, lines: io.StringIO, tmp_path: Path
) -> None:
    service = served.DispatcherService(state(), RunningClock())
    handler = stubs.service_handler(served.DESCRIPTOR, service)
    own = credentials(tmp_path, DISPATCHER, encrypted=encrypted)
    server = serving.make_server([handler], "127.0.0.1:0", own)
    server.start()
    client = credentials(tmp_path, SIDECAR, encrypted=encrypted)
    entry = EntryPoint(target="digits:make", args_json='{"key": "hunter22"}')
    named = job("eval", b"other", entry_point=entry)
    with serving.open_channel(server.address, client, private=True) as channel:
        stub = stubs.Stub(channel, served.DESCRIPTOR)
        stub.PutDataset(iter([wire.DatasetChunk(dataset_id=FINGERPRINT, data=DATA)]), timeout=20)
        for one, incarnation in ((job("train", DATA), "i-1"), (named, "i-2")):
            request = wire.RegisterJobRequest(job=one, incarnation=incarnation)
            stub.RegisterJob(request, timeout=20)
    server.stop(0)
    text = lines.getvalue()
    assert "hunter22" not in text
    found = [json.loads(line) for line in text.splitlines() if ".audit" in line]
    who = authority().identity(SIDECAR).uri if encrypted else ""
    assert [(one["message"], one["dataset"], one["identity"]) for one in found] == [
        ("dataset registered", FINGERPRINT, who),
        ("job registered", FINGERPRINT, who),
        ("job registered", hashlib.sha256(b"other").hexdigest(), who),
    ]
    assert all(one["time"] and one["peer"].startswith("ipv4:127.0.0.1:") for one in found)
    assert [one.get("entry_point") for one in found] == [None, "", "digits:make"]
    assert found[0]["size"] == len(DATA)
