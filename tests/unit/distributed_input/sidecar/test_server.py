from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distributed_input.api.files import SOCKET_NAME
from distributed_input.link.trainer import packet_socket
from distributed_input.runtime import metrics
from distributed_input.sidecar import server as module
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.server import SidecarServer
from distributed_input.sidecar.streams.stream_context import SourceStats
from tests.unit.distributed_input.sidecar.system import BATCH, ROWS, eventually, running


def server(folder: Path) -> SidecarServer:
    return SidecarServer(InputRegistry(lambda *_: pytest.fail("no job"), []), folder)


def test_the_socket_of_an_earlier_container_is_replaced(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("old")
    new = server(tmp_path)
    new.start()
    with packet_socket.new() as trainer:
        trainer.connect(str(tmp_path / SOCKET_NAME))
    assert new.is_healthy
    new.close()
    assert not (tmp_path / SOCKET_NAME).exists()


def test_a_closed_server_has_no_thread(tmp_path: Path) -> None:
    new = server(tmp_path)
    new.start()
    with packet_socket.new() as trainer:  # so that it most likely waits for another one
        trainer.connect(str(tmp_path / SOCKET_NAME))
        trainer.send(b"no message")
        assert trainer.recv(1 << 16) == b""
    new.close()
    new._thread.join(10)
    assert not new.is_healthy


def test_a_server_accepts_trainers_after_it_had_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.001)
    new = server(tmp_path)
    accept, failures = new._socket.accept, [OSError(errno.EMFILE, "too many open files")] * 2

    def fail_first() -> Any:
        if failures:
            raise failures.pop()
        return accept()

    real = new._socket
    fake = SimpleNamespace(accept=fail_first, close=real.close, shutdown=real.shutdown)
    monkeypatch.setattr(new, "_socket", fake)
    new.start()
    with packet_socket.new() as trainer:
        trainer.connect(str(tmp_path / SOCKET_NAME))
        trainer.send(b"no message")
        assert trainer.recv(1 << 16) == b"", "the session has ended the connection"
    assert not failures
    assert new.is_healthy
    new.close()


def test_a_server_without_a_thread_is_not_healthy(tmp_path: Path) -> None:
    new = server(tmp_path)
    assert not new.is_healthy
    assert new.samples() == []
    new.close()
    eventually(lambda: not new.is_healthy)


def test_all_metrics_of_the_sidecar_have_samples(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar()
        reader = system.connect()
        assert sum(batch.rows for batch in reader.units(reader.begin())) == ROWS
        eventually(lambda: job.sessions.stats().batches == ROWS // BATCH)
        assert job.sessions.stats().useful_limit.startswith("the dataset has 4 splits")
        job.streams.reconnects["UnavailableError"] += 2
        job.streams.sources["web"] = SourceStats(7, 0.5)
        job.link.pool.lost_workers += 1
        found = {
            (sample.definition.name, sample.labels): sample.value for sample in module._samples(job)
        }
        reader.close()
    prefix = f"{metrics.PREFIX}sidecar"
    defined = {d.name for d in metrics.definitions() if d.name.startswith(prefix)}
    assert {name for name, _ in found} == defined
    value = {name.removeprefix(f"{prefix}_"): v for (name, _), v in found.items()}
    assert value["rows_total"] == ROWS
    assert value["batches_total"] == ROWS // BATCH
    assert value["bytes_total"] == ROWS * 8
    assert value["received_bytes_total"] >= ROWS * 8
    assert value["ring_bytes"] == 1 << 20
    assert value["useful_workers"] == 4
    assert value["worker_losses_total"] == 1
    assert 0 <= value["heartbeat_age_seconds"] < 5
    assert found[metrics.SIDECAR_RECONNECTS.name, ("train", "0", "UnavailableError")] == 2
