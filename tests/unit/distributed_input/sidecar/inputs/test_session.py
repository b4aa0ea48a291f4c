from __future__ import annotations

import select
import socket
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, FencedError
from distributed_input.api.proto import trainer_pb2
from distributed_input.client import open_readers
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.inputs.session import TrainerSession
from tests.unit.distributed_input.sidecar.system import (
    BATCH,
    current_session,
    eventually,
    running,
)

ROWS = 20_000
SMALL = 1 << 12
"""Bytes that the older session's socket holds, far fewer than an epoch's packets."""


def test_a_trainer_that_reads_nothing_does_not_block_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older trainer is in another process, so the newer one cannot close it."""
    monkeypatch.setattr(open_readers, "add", lambda reader: None)
    with running(tmp_path, ROWS) as system:
        job = system.add_sidecar()
        older = system.connect()
        sock = current_session(job)._socket._socket
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        units = older.units(older.begin())
        assert next(units).rows == BATCH
        eventually(lambda: not select.select([], [sock], [], 0)[1])
        newer = system.connect()
        assert next(newer.units(newer.begin())).rows == BATCH
        with pytest.raises(FencedError, match="one reader at a time"):
            sum(1 for _ in units)  # the units in the socket, and then the error
        newer.close()
        older.close()
        del older, units, newer
        eventually(lambda: job.slots.used == 0)


def answer(message: trainer_pb2.FromTrainer) -> trainer_pb2.Failure:
    """Send one message as the first of a session. Return the failure that it answers."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    registry = InputRegistry(lambda name, job: pytest.fail(f"{name}{job}"), [])
    session = TrainerSession(theirs, registry)
    session._receive(message)
    failure = trainer_pb2.FromSidecar.FromString(ours.recv(1 << 16)).failure
    assert ours.recv(1 << 16) == b""  # the end follows
    session.close()
    ours.close()
    return failure


@pytest.mark.parametrize("kind", ["open", "start"])
def test_a_session_must_begin_with_hello(kind: str) -> None:
    message = trainer_pb2.FromTrainer()
    getattr(message, kind).SetInParent()
    failure = answer(message)
    assert failure.kind == ConfigError.__name__
    assert "first message must be Hello" in failure.message


def test_an_unknown_message_is_refused() -> None:
    failure = answer(trainer_pb2.FromTrainer())
    assert failure.kind == ConfigError.__name__
    assert "upgrade the sidecar" in failure.message


def test_progress_and_releases_before_hello_have_no_effect() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session = TrainerSession(theirs, InputRegistry(lambda name, job: pytest.fail(name), []))
    session._receive(trainer_pb2.FromTrainer(progress=trainer_pb2.Progress(units=3)))
    session._receive(trainer_pb2.FromTrainer(release=trainer_pb2.Release(slots=[0])))
    assert (session.stats().rows, session.partitions, session.facts()) == (0, 0, [])
    session.close()
    assert ours.recv(1 << 16) == b""
    ours.close()
