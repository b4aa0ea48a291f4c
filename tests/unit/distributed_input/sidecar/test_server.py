from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input.api.files import SOCKET_NAME
from distributed_input.runtime.portable import packet_socket
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.server import SidecarServer
from tests.unit.distributed_input.sidecar.system import eventually


def server(folder: Path) -> SidecarServer:
    return SidecarServer(InputRegistry(lambda name, job: pytest.fail(name), []), folder)


def test_the_socket_of_an_earlier_container_is_replaced(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("old")
    new = server(tmp_path)
    new.start()
    with packet_socket.new() as trainer:
        trainer.connect(str(tmp_path / SOCKET_NAME))
    assert new.is_healthy
    new.close()
    assert not (tmp_path / SOCKET_NAME).exists()


def test_a_server_without_a_thread_is_not_healthy(tmp_path: Path) -> None:
    new = server(tmp_path)
    assert not new.is_healthy
    assert new.samples() == []
    new.close()
    eventually(lambda: not new.is_healthy)
