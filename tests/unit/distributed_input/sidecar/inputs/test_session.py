from __future__ import annotations

import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, FencedError
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.trainer import packet_socket
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.inputs.session import TrainerSession
from distributed_input.trainer import open_consumers
from tests.unit.distributed_input.sidecar.system import (
    BATCH,
    current_session,
    eventually,
    running,
)
from tests.unit.distributed_input.sidecar.system import ROWS as SHORT_ROWS

ROWS = 20_000
SMALL = 1 << 12
"""Bytes that the older session's socket holds, far fewer than an epoch's packets."""


def test_a_trainer_that_reads_nothing_does_not_block_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older trainer is in another process, so the newer one cannot close it."""
    monkeypatch.setattr(open_consumers, "add", lambda reader: None)
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


def test_the_trainer_that_connected_last_reads_in_any_order_of_the_first_messages(
    tmp_path: Path,
) -> None:
    """The threads of two sessions may handle their first messages in the other order."""
    with running(tmp_path, ROWS) as system:
        job = system.add_sidecar()
        registry = InputRegistry(lambda *_: job, [job.name])
        pairs = [packet_socket.pair() for _ in range(2)]
        older, newer = (TrainerSession(theirs, registry) for _, theirs in pairs)
        hello = trainer_pb2.FromTrainer(hello=trainer_pb2.Hello(protocol=PROTOCOL))
        newer._receive(hello)
        older._receive(hello)
        answers = [trainer_pb2.FromSidecar.FromString(ours.recv(1 << 16)) for ours, _ in pairs]
        assert answers[0].failure.kind == FencedError.__name__
        assert answers[1].welcome.input == job.name
        assert current_session(job) is newer
        for session, (ours, _) in zip((older, newer), pairs, strict=True):
            session.close()
            ours.close()


def test_each_rank_reads_its_own_rows_and_has_a_fence_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(ranks_per_trainer=2)
        ranks = [trainer_pb2.Rank(index=r, count=2, source="any", requested=True) for r in range(2)]
        with pytest.raises(ConfigError, match="this process has no rank"):
            system.connect()
        zero, one = (system.connect(rank=rank) for rank in ranks)
        assert [(r.welcome.consumer, r.welcome.consumers) for r in (zero, one)] == [(0, 2), (1, 2)]
        assert zero.welcome.slots_file != one.welcome.slots_file
        units = one.units(one.begin())
        first = next(units).rows
        monkeypatch.setattr(open_consumers, "add", lambda reader: None)  # as in another process
        again = system.connect(rank=ranks[1])
        with pytest.raises(
            FencedError, match=r"one reader at a time\. This process is rank 1 of 2"
        ):
            sum(1 for _ in units)
        del units
        with ThreadPoolExecutor(2) as pool:
            read = [pool.submit(lambda r=r: sum(u.rows for u in r.units(r.begin())))
                    for r in (zero, again)]  # fmt: skip
            assert [one.result(30) for one in read] == [SHORT_ROWS // 2] * 2
        assert first == BATCH // 2
        for reader in (zero, one, again):
            reader.close()
        del reader, zero, one, again, read
        eventually(lambda: job.slots.used == 0)


def answer(message: trainer_pb2.FromTrainer) -> trainer_pb2.Failure:
    """Send one message as the first of a session. Return the failure that it answers."""
    ours, theirs = packet_socket.pair()
    registry = InputRegistry(lambda *_: pytest.fail("no job"), [])
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


def test_a_second_hello_on_one_connection_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        own = system.add_sidecar()
        reader = system.connect()
        channel = reader._session.channel
        channel.send(hello=trainer_pb2.Hello(protocol=PROTOCOL, input="train", job="other"))
        with pytest.raises(ConfigError, match="Hello twice on one connection"):
            list(reader.units(reader.begin()))
        eventually(lambda: own.sessions.is_idle)
        assert [job.job for job in system.registries[0].all()] == [""]
        reader.close()


@pytest.mark.parametrize("error", [False, True], ids=["read", "refused"])
def test_a_closed_job_is_released(tmp_path: Path, error: bool) -> None:
    with running(tmp_path) as system:
        system.add_sidecar()
        registry = system.registries[0]
        reader = system.connect("other")
        (other,) = [job for job in registry.all() if job.job]
        session = current_session(other)
        units = reader.units(reader.begin())
        held = next(units)
        if error:
            session.end(ConfigError("refused"))
        reader.close()
        eventually(lambda: other not in registry.all())
        assert not other.slots.path.exists()
        assert held.rows == BATCH, "the trainer still holds a batch"
        assert other.slots.slots == 1
        del held
        del units  # its frame has the batch too
        eventually(lambda: other.slots.slots == 0)
        eventually(lambda: not threads_of(session))


def threads_of(session: TrainerSession) -> list[str]:
    """Return the threads that serve a session or leave a job."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name == "leave" or getattr(thread, "_target", None) == session.serve
    ]


def test_a_closed_reader_does_not_release_the_job_of_the_next_one(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.add_sidecar()
        older = system.connect("other")
        older_units = older.units(older.begin())
        next(older_units)
        newer = system.connect("other")  # closes the older one
        assert sum(unit.rows for unit in newer.units(newer.begin())) == SHORT_ROWS
        older.close()
        assert sum(unit.rows for unit in newer.units(newer.begin())) == SHORT_ROWS
        newer.close()


@pytest.mark.parametrize("readers", [0, 2])
def test_a_trainer_that_comes_while_the_sidecar_stops_finds_the_connection_closed(
    tmp_path: Path, readers: int
) -> None:
    """It gets no error: it looks for the next sidecar."""
    with running(tmp_path) as system:
        system.add_sidecar()
        registry = system.registries[0]
        registry.close()
        ours, theirs = packet_socket.pair()
        rank = trainer_pb2.Rank(count=1, requested=True, readers=readers)
        hello = trainer_pb2.Hello(protocol=PROTOCOL, rank=rank)
        TrainerSession(theirs, registry)._receive(trainer_pb2.FromTrainer(hello=hello))
        assert ours.recv(1 << 16) == b""
        ours.close()


def test_an_unknown_message_is_refused() -> None:
    failure = answer(trainer_pb2.FromTrainer())
    assert failure.kind == ConfigError.__name__
    assert "upgrade the sidecar" in failure.message


def test_progress_and_releases_before_hello_have_no_effect() -> None:
    ours, theirs = packet_socket.pair()
    session = TrainerSession(theirs, InputRegistry(lambda *_: pytest.fail("no job"), []))
    session._receive(trainer_pb2.FromTrainer(progress=trainer_pb2.Progress(units=3)))
    session._receive(trainer_pb2.FromTrainer(release=trainer_pb2.Release(slots=[0])))
    assert (session.stats().rows, session.useful.number, session.facts()) == (0, 0, [])
    session.close()
    assert ours.recv(1 << 16) == b""
    ours.close()


def test_a_packet_that_is_not_a_message_ends_the_session() -> None:
    ours, theirs = packet_socket.pair()
    with ours, theirs:
        ours.send(b"\xff" * 20)
        TrainerSession(theirs, InputRegistry(lambda *_: pytest.fail("no job"), [])).serve()
        assert ours.recv(1) == b""
