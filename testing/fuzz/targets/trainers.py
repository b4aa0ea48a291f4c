"""What trainers and sidecars send to each other, and positions in checkpoints."""

from __future__ import annotations

import itertools
import os
import socket
import tempfile
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed_input.api.errors import ConfigError, PositionError, ProtocolError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.trainer.slots import Slots
from distributed_input.link.trainer.trainer_end import Channel, SidecarDisconnected
from distributed_input.order import identity
from distributed_input.order.share import share_of
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.inputs.session import TrainerSession
from distributed_input.sidecar.steps import resume
from distributed_input.trainer import position_log
from testing.fuzz.target import Subject, Target

_JOB = types_pb2.Job(
    name="train", seed=7, partitions=4, num_splits=8, global_batch_size=8, batched=True
)
_RING = 1 << 16


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    return ours, theirs


def _position() -> trainer_pb2.Position:
    position = trainer_pb2.Position(
        job="train", epoch=1, step=10, consumers=2, base_rows=[0] * 4, partitions=4, seed=7,
        global_batch_size=8, anchors=[trainer_pb2.Anchor(ordinal=1, rows=10)] * 4,
        prefixes=[trainer_pb2.Prefix(partition=1, split=1, rows=5, digest=9)],
    )  # fmt: skip
    identity.stamp(position, _JOB)
    return position


class _Registry:
    """An input whose parts record what they get."""

    def __init__(self) -> None:
        self.slots = SlotPool(Path(tempfile.mkdtemp()) / "slots", _RING)
        self.sent: Any = None
        self.input = SimpleNamespace(
            slots=self.slots, name="train", job="", consumer=0, consumers=2, config=_JOB,
            from_trainer=True, timeout_seconds=1.0, open_job=lambda draft, dataset: _JOB,
            row_source=lambda job: SimpleNamespace(job=job, useful=None),
            link=SimpleNamespace(request_heartbeat=lambda: None),
            sessions=SimpleNamespace(
                leave=lambda *_: None, detach=lambda *_: None, keep_facts=lambda *_: None
            ),
        )  # fmt: skip

    def attach(self, name: str, job: str, session: Any) -> Any:
        if name not in ("", "train"):
            raise ConfigError(f"no input {name!r}")
        return self.input

    def release(self, job: Any) -> None:
        pass


def _sessions() -> Subject:
    """Several packets of one trainer, each with its length."""
    registry = _Registry()

    def parse(data: bytes) -> None:
        ours, theirs = _pair()
        session = TrainerSession(ours, registry)  # type: ignore[arg-type]
        # The peer reads nothing. A thread for each input would cost more than everything else.
        unread: Any = session._socket
        unread.send_last = lambda message: None
        unread.send = lambda message, cancelled: message.SerializeToString()
        theirs.setblocking(False)
        at = 0
        while at < len(data):
            size = 1 + int.from_bytes(data[at : at + 2], "little")
            packet, at = data[at + 2 : at + 2 + size], at + 2 + size
            try:
                theirs.sendall(packet)
            except OSError:
                break
        theirs.shutdown(socket.SHUT_WR)
        session.serve()
        theirs.close()

    hello = trainer_pb2.FromTrainer(hello=trainer_pb2.Hello(protocol=PROTOCOL, input="train"))
    opened = trainer_pb2.FromTrainer(open=trainer_pb2.Open(draft=_JOB, replicas=1))
    release = trainer_pb2.FromTrainer(release=trainer_pb2.Release(slots=[0, 64]))
    progress = trainer_pb2.FromTrainer(progress=trainer_pb2.Progress(units=3, generation=1))
    close = trainer_pb2.FromTrainer(close=trainer_pb2.Close())
    packets = [one.SerializeToString() for one in (hello, opened, release, progress, close)]
    framed = [(len(one) - 1).to_bytes(2, "little") + one for one in packets if one]
    return Subject(parse, [b"".join(framed), b"".join(framed[:2]), framed[2] + framed[3]], ())


def _channel() -> Subject:
    folder = Path(tempfile.mkdtemp())
    (folder / "slots").write_bytes(bytes(_RING))
    slots = Slots(folder / "slots", _RING)

    def parse(data: bytes) -> None:
        ours, theirs = _pair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        channel = Channel.__new__(Channel)
        channel._socket, channel._slots, channel.pid = ours, slots, os.getpid()
        channel._released = deque()
        channel._receiving = channel._idle = channel._shut_down = False
        ours.setblocking(False)
        try:
            theirs.send(data)
            message = channel.receive(0)
            if message is None:
                return
            units = [message.unit] if message.HasField("unit") else message.units.units
            for unit in units:
                for buffer in channel.batch(unit).buffers:
                    buffer.tobytes()  # reads the memory
        except OSError:
            pass  # longer than a packet
        finally:
            theirs.close()
            ours.close()

    unit = trainer_pb2.Unit(
        generation=1, rows=2, slot=64, offsets=[64, 128], sizes=[16, 4], after=_position()
    )
    messages = [
        trainer_pb2.FromSidecar(unit=unit),
        trainer_pb2.FromSidecar(units=trainer_pb2.Units(units=[unit, unit])),
        trainer_pb2.FromSidecar(welcome=trainer_pb2.Welcome(protocol=PROTOCOL, slots_bytes=_RING)),
        trainer_pb2.FromSidecar(failure=trainer_pb2.Failure(kind="SpecError", message="wrong")),
    ]
    seeds = [one.SerializeToString() for one in messages]
    return Subject(parse, seeds, (ProtocolError, SidecarDisconnected))


def _positions() -> Subject:
    """A position of a checkpoint, up to the rows at which partitions are opened."""
    # The second one, with two replicas, accepts the seed within a step.
    shares = [share_of(_JOB, 0, 1), share_of(_JOB, 1, 2, 2)]
    numbers = itertools.count()

    def parse(data: bytes) -> None:
        position = position_log.parse(data)
        share = shares[next(numbers) % 2]
        resume.check_position(position, _JOB, share)
        totals = resume.known_totals(position)
        rows: dict[int, int] = {}
        for group in resume._groups(position, _JOB, share):
            rows |= resume.rows_at(position, _JOB, share, group, totals)
        for partition in share.partitions:
            resume.start_of(position, partition, rows[partition], [0, 1])

    extra, own = _position(), _position()
    extra.extra_units, extra.units_per_step = 1, 2
    own.ClearField("anchors")
    seeds = [one.SerializeToString() for one in (_position(), extra, own)]
    return Subject(parse, seeds, (PositionError, ConfigError))


TARGETS = (
    Target("trainers/sessions", "trainer → sidecar, Unix socket", _sessions),
    Target("trainers/channel", "sidecar → trainer, Unix socket and shared memory", _channel),
    Target("trainers/positions", "checkpoint → trainer → sidecar", _positions, 2),
)
