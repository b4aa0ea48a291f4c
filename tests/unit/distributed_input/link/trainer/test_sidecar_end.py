from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_SIDECAR_BYTES, TO_TRAINER_BYTES
from distributed_input.link.errors import Cancelled
from tests.unit.distributed_input.sidecar.delivery.sockets import Trainer

NEVER = threading.Event()


def waiting(what: str) -> trainer_pb2.FromSidecar:
    return trainer_pb2.FromSidecar(waiting=trainer_pb2.Waiting(what=what))


LARGE = waiting("x" * 100_000)


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    trainer = Trainer()
    yield trainer
    trainer.close()


def fill(trainer: Trainer) -> int:
    """Send until the socket is full. Return the number of messages."""
    sent = 0
    while trainer.socket._try_send(LARGE.SerializeToString()):
        sent += 1
    return sent


def test_the_last_message_waits_in_its_own_thread_for_the_trainer(trainer: Trainer) -> None:
    sent = fill(trainer)
    trainer.socket.closed.set()
    trainer.socket.send_last(waiting("last"))
    assert [trainer.receive() for _ in range(sent)] == [LARGE] * sent
    assert trainer.receive() == waiting("last")
    assert trainer.receive() is None


def test_a_cancelled_send_ends_while_the_socket_is_full(trainer: Trainer) -> None:
    fill(trainer)
    cancelled = threading.Event()
    threading.Timer(0.1, cancelled.set).start()
    with pytest.raises(Cancelled):
        trainer.socket.send(LARGE, cancelled)


def test_a_message_that_is_too_long_is_refused(trainer: Trainer) -> None:
    overhead = waiting("x" * TO_TRAINER_BYTES).ByteSize() - TO_TRAINER_BYTES
    longest = waiting("x" * (TO_TRAINER_BYTES - overhead))
    trainer.socket.send(longest, NEVER)
    assert trainer.receive() == longest
    with pytest.raises(ConfigError, match=r"is too long \(at most 262,144\).*components"):
        trainer.socket.send(waiting("x" * TO_TRAINER_BYTES), NEVER)
    assert not trainer.has_message()


def test_a_trainer_that_sends_too_long_a_packet_is_disconnected(trainer: Trainer) -> None:
    """Its message would be cut off. It reconnects and resumes."""
    trainer.send(bytes(TO_SIDECAR_BYTES))
    assert len(trainer.socket.receive()) == TO_SIDECAR_BYTES
    trainer.send(bytes(TO_SIDECAR_BYTES + 1))
    with pytest.raises(OSError, match="too long"):
        trainer.socket.receive()


def test_packets_sent_before_the_trainer_left_are_received(trainer: Trainer) -> None:
    trainer.socket.send(waiting("never read"), NEVER)
    trainer.send(b"release")
    trainer._socket.close()
    assert trainer.socket.receive() == b"release"
    assert trainer.socket.receive() == b""
