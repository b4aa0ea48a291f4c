"""Every wait of the client ends at its default deadline, with the cause."""

from __future__ import annotations

import select
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.config import DatasetConfig, DeliveryConfig, InputConfig
from distributed_input.api.environment import DIR_ENV
from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.link.trainer import packet_socket, trainer_end
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.link.trainer.trainer_end import Channel, SidecarDisconnected
from distributed_input.sidecar.inputs import job_input
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.inputs.session import TrainerSession
from distributed_input.trainer import consumer, progress, session
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.input import connect
from tests.unit.distributed_input.trainer.sidecars import SECONDS, Sidecar, Trainer
from tests.unit.distributed_input.virtual_time import VirtualTime

TIMEOUT = DeliveryConfig().timeout_seconds
CONNECT = 60.0
POLL = 2.5
"""Seconds that a deadline may be late, because the client polls every 2 s."""
ANSWER_SECONDS = 1.0
"""Real seconds that a sidecar of a test may take to answer."""


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    sidecar = Sidecar(tmp_path, timeout_seconds=TIMEOUT)
    yield sidecar
    sidecar.close()


def virtual(
    patch: pytest.MonkeyPatch, threads: int = 1, *, answer_seconds: float = 0.0
) -> VirtualTime:
    """Replace the client's time from now on."""
    clock = VirtualTime(patch, threads)
    clock.replace(session, trainer_end, consumer, progress)
    real = Channel._poll

    def poll(self: Channel, events: int, seconds: float) -> bool:
        if events == trainer_end._HANGUP:
            return real(self, events, seconds)  # of the thread that watches the connection
        answered = bool(answer_seconds) and real(self, events, answer_seconds)
        return answered or clock.wait(seconds, lambda: real(self, events, 0.0))

    patch.setattr(Channel, "_poll", poll)
    return clock


def opened(folder: Path) -> Consumer:
    found = Consumer(folder, "", CONNECT)
    found.open(types_pb2.Job(), b"", 1)
    return found


def begun(folder: Path, sidecar: Sidecar) -> tuple[Consumer, Trainer, int]:
    found = opened(folder)
    trainer = sidecar.trainer()
    return found, trainer, found.begin()


def test_connecting_without_a_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = virtual(monkeypatch)
    monkeypatch.setenv(DIR_ENV, str(tmp_path))
    began = clock.now
    with pytest.raises(UnavailableError, match=r"no sidecar at .* for 60 s .*distributed-input"):
        connect()
    assert CONNECT <= clock.now - began < CONNECT + 1
    (notice,) = caplog.messages
    assert f"waiting for a sidecar at {tmp_path}, for 60 s at most" in notice


def test_connecting_to_a_stopped_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = virtual(monkeypatch)
    monkeypatch.setenv(DIR_ENV, str(tmp_path))
    with packet_socket.new() as listening:
        listening.bind(str(tmp_path / SOCKET_NAME))
        listening.listen()
        began = clock.now
        with pytest.raises(UnavailableError, match=r"for 60 s .*sent nothing in time"):
            connect()
    assert CONNECT <= clock.now - began < CONNECT + POLL


def test_opening_a_job_that_the_sidecar_does_not_answer(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Consumer(tmp_path, "", CONNECT)
    sidecar.trainer().silent = True
    clock = virtual(monkeypatch)
    began = clock.now
    with pytest.raises(UnavailableError, match=r"sent nothing in time: .*stopped"):
        mine.open(types_pb2.Job(), b"", 1)
    assert TIMEOUT + 30 <= clock.now - began < TIMEOUT + 30 + POLL
    mine.close()


@pytest.mark.slow
def test_opening_a_job_on_sidecars_that_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = Sidecar(tmp_path, refusal="crash", timeout_seconds=TIMEOUT)
    mine = Consumer(tmp_path, "", CONNECT)
    clock = virtual(monkeypatch, answer_seconds=ANSWER_SECONDS)
    began = clock.now
    with pytest.raises(UnavailableError, match="keeps closing the connection"):
        mine.open(types_pb2.Job(), b"", 1)
    assert TIMEOUT <= clock.now - began < TIMEOUT + 1
    mine.close()
    crashing.close()


def test_waiting_for_a_unit_from_a_silent_sidecar(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, trainer, generation = begun(tmp_path, sidecar)
    clock = virtual(monkeypatch)
    began = clock.now
    with pytest.raises(UnavailableError, match=r"sent nothing in time: .*stopped"):
        next(mine.units(generation))
    assert TIMEOUT + 30 <= clock.now - began < TIMEOUT + 30 + POLL
    mine.close()
    assert 5 <= waiting_reports(trainer) <= 10, "a sidecar that does not read gets few reports"


def waiting_reports(trainer: Trainer) -> int:
    trainer.close()
    return sum(m.progress.waiting for m in iter_received(trainer))


def iter_received(trainer: Trainer) -> Iterator[trainer_pb2.FromTrainer]:
    while not trainer.received.empty():
        yield trainer.received.get()


def test_a_report_of_the_sidecar_moves_the_deadline(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, trainer, generation = begun(tmp_path, sidecar)
    clock = virtual(monkeypatch)
    began = clock.now
    real = Channel.receive
    sent: list[float] = []

    def receive(self: Channel, seconds: float) -> trainer_pb2.FromSidecar | None:
        if clock.now - began >= TIMEOUT and not sent:
            sent.append(clock.now)
            trainer.send(waiting={"what": "rows of partition 0"})
        return real(self, seconds)

    monkeypatch.setattr(Channel, "receive", receive)
    with pytest.raises(UnavailableError, match="sent nothing in time"):
        next(mine.units(generation))
    assert 2 * TIMEOUT + 30 <= clock.now - began < 2 * TIMEOUT + 30 + 2 * POLL
    mine.close()


def test_a_report_of_units_is_followed_by_a_report_of_the_wait(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may begin an epoch while one waits; the sidecar must know that it waits."""
    mine, _, generation = begun(tmp_path, sidecar)
    clock = virtual(monkeypatch)
    meter = mine._session.meter
    for _ in range(5):
        meter.waiting(generation)
    assert not meter.wait_due
    clock.now += 1
    meter.report(generation, 3)
    assert meter.wait_due
    mine.close()


def test_all_iterators_of_a_run_that_has_ended_raise_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    served = Sidecar(folder, timeout_seconds=TIMEOUT)
    consumer, trainer, generation = begun(folder, served)
    running = consumer.units(generation)
    served.close()
    shutil.rmtree(folder)
    trainer.close()
    for units in (running, consumer.units()):
        with pytest.raises(UnavailableError, match="the run that served input train has ended"):
            next(units)
    with pytest.raises(UnavailableError, match="the run that served input train has ended"):
        consumer.open(types_pb2.Job(), b"", 2)
    consumer.close()


def test_reconnecting_without_another_sidecar(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, trainer, generation = begun(tmp_path, sidecar)
    clock = virtual(monkeypatch)
    began = clock.now
    sidecar.close()
    trainer.close()
    with pytest.raises(UnavailableError, match=r"no sidecar at .* for 600 s"):
        next(mine.units(generation))
    assert TIMEOUT <= clock.now - began < TIMEOUT + 1
    mine.close()


def test_sending_to_a_sidecar_that_does_not_read(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new epoch starts on a new connection, even if the sidecar continues meanwhile."""
    mine, _, _ = begun(tmp_path, sidecar)
    clock = virtual(monkeypatch, answer_seconds=ANSWER_SECONDS)
    full = mine._session.channel
    real, began = Channel._send_within, clock.now

    def send_within(self: Channel, seconds: float, packet: bytes) -> bool:
        if self is full and clock.now < began + 91:
            clock.sleep(seconds)
            return False
        return real(self, seconds, packet)

    monkeypatch.setattr(Channel, "_send_within", send_within)
    with pytest.raises(SidecarDisconnected, match="it has read nothing for 30 s"):
        full.send(release={"slots": [0]})
    assert clock.now - began == 30
    full.release(0)
    full.mark_idle()
    assert clock.now - began == 31, "a slot is sent with the next message"
    units = mine.units(mine.begin())
    assert clock.now - began == 91, "neither the report nor the start was sent"
    requesting = threading.Thread(target=lambda: next(units, None), daemon=True)
    requesting.start()
    other = sidecar.trainer()
    generation = other.start().generation
    assert generation == mine.generation
    other.send(end={"generation": generation})
    requesting.join(SECONDS)
    assert not requesting.is_alive()
    mine.close()


class VirtualSocket:
    """A sidecar's socket whose waits for messages are in virtual time."""

    def __init__(self, sock: socket.socket, clock: VirtualTime) -> None:
        self._socket, self._clock = sock, clock

    def recv(self, size: int) -> bytes:
        """Wait for a packet, for as long as it takes."""
        self._clock.wait(float("inf"), lambda: select.select([self._socket], [], [], 0)[0])
        return self._socket.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_no_worker_ever_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidecar waits for a worker and reads nothing. Its error arrives before the client's."""
    clock = virtual(monkeypatch, threads=2)
    clock.replace(job_input)
    monkeypatch.setattr(TrainerSocket, "send_last", TrainerSocket._send_last)
    config = InputConfig(DatasetConfig("any:where"))
    job = JobInput("train", config, "127.0.0.1:9", Credentials(), tmp_path, TrainerRanks())
    # Not in the class: a thread that another test has left would use this clock too.
    monkeypatch.setattr(job.link.pool, "wait", clock.sleep)
    registry = InputRegistry(lambda *_: job, ["train"])
    listening = packet_socket.new()
    listening.bind(str(tmp_path / SOCKET_NAME))
    listening.listen()

    def serve() -> None:
        sock, _ = listening.accept()
        TrainerSession(VirtualSocket(sock, clock), registry).serve()  # type: ignore[arg-type]

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    mine = Consumer(tmp_path, "", CONNECT)
    began = clock.now
    with pytest.raises(DistributedInputError) as caught:
        mine.open(types_pb2.Job(), b"", 1)
    assert type(caught.value) is UnavailableError
    assert "no worker of input train has described its dataset for 600 s" in str(caught.value)
    assert "Check that the workers are running" in str(caught.value)
    assert TIMEOUT <= clock.now - began < TIMEOUT + POLL
    mine.close()
    mine._session.channel._socket.close()
    clock.leave()
    serving.join(SECONDS)
    assert not serving.is_alive()
    listening.close()
    job.slots.close()
