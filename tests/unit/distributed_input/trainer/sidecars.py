"""A sidecar for tests of the client: a real socket and slots, with messages from the test."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from pathlib import Path
from typing import Any

from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.trainer import packet_socket
from distributed_input.trainer.consumer import Consumer

SLOTS_BYTES = 1 << 12
SECONDS = 10.0
"""Timeout of events that happen at once, on a busy machine."""
BATCH_OF_ONE = trainer_pb2.Opened(
    job=types_pb2.Job(name="train", partitions=1, global_batch_size=1),
    unit_rows=1,
    units_per_step=1,
)
"""A job whose steps have one row."""

Message = trainer_pb2.FromTrainer


class Trainer:
    """One trainer's connection; `received` has its messages after Hello and Open.

    Attributes:
        silent: whether later messages are not answered.
    """

    def __init__(self, sock: socket.socket, sidecar: Sidecar) -> None:
        self._socket, self._sidecar = sock, sidecar
        self.silent = False
        self.received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def send(self, **message: Any) -> None:
        """Send one `FromSidecar` message, given as its field."""
        self._socket.send(trainer_pb2.FromSidecar(**message).SerializeToString())

    def unit(self, generation: int, index: int, step: int | None = None) -> None:
        """Send a unit of one byte, in a slot and of a split named after its index."""
        slot = 64 * index
        after = None
        if step is not None:
            after = trainer_pb2.Position(
                job="train", partitions=1, global_batch_size=1, step=step, epoch=0
            )
        unit = trainer_pb2.Unit(
            generation=generation, index=index, rows=1, slot=slot, offsets=[slot], sizes=[1],
            after=after, lineage=[trainer_pb2.RowRange(split=index, rows=1)],
        )  # fmt: skip
        self.send(unit=unit)

    def units_together(self, generation: int, count: int) -> None:
        """Send several units in one packet."""
        units = [
            trainer_pb2.Unit(
                generation=generation, index=index, rows=1, slot=64 * index,
                offsets=[64 * index], sizes=[1],
            )
            for index in range(count)
        ]  # fmt: skip
        self.send(units=trainer_pb2.Units(units=units))

    def start(self) -> trainer_pb2.StartEpoch:
        """Return the next epoch that the trainer starts; skip other messages."""
        while not (message := self.received.get(timeout=SECONDS)).HasField("start"):
            pass
        return message.start

    def end(self) -> None:
        """Stop sending."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection, as a crash does."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)

    def _serve(self) -> None:
        with self._socket:
            self._answer()

    def _answer(self) -> None:
        while packet := self._receive():
            message = Message.FromString(packet)
            if message.HasField("hello"):
                self.send(
                    welcome=trainer_pb2.Welcome(
                        protocol=PROTOCOL, input="train", consumers=1, ranks=self._sidecar.ranks,
                        slots_file=self._sidecar.slots, slots_bytes=SLOTS_BYTES,
                        timeout_seconds=self._sidecar.timeout_seconds,
                    )
                )  # fmt: skip
            elif self.silent:
                self.received.put(message)
            elif message.HasField("open") and self._sidecar.refusal == "crash":
                return
            elif message.HasField("open") and self._sidecar.refusal:
                self.send(failure={"kind": self._sidecar.refusal, "message": "no job"})
            elif message.HasField("open"):
                if self._sidecar.waiting:
                    self.send(waiting={"what": self._sidecar.waiting})
                self.send(opened=self._sidecar.opened)
            else:
                self.received.put(message)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 17)
        except OSError:
            return b""


class Sidecar:
    """Listens in `folder`; `trainers` has the connections, in their order.

    Attributes:
        ranks: number of ranks of the trainer.
        waiting: what each Open is said to wait for; "": nothing.

    Args:
        number: the number of this sidecar in the folder.
        refusal: the kind of error with which jobs are rejected; empty: none; "crash": the
            connection ends instead.
        timeout_seconds: the input's spec.sidecar.timeoutSeconds.
        opened: the answer to each Open.
    """

    def __init__(
        self,
        folder: Path,
        number: int = 0,
        refusal: str = "",
        timeout_seconds: float = SECONDS,
        opened: trainer_pb2.Opened = BATCH_OF_ONE,
    ) -> None:
        self.folder, self._number = folder, number
        self._later: list[Sidecar] = []
        slots = folder / f"slots-{number}"
        slots.write_bytes(bytes(SLOTS_BYTES))
        path = folder / SOCKET_NAME
        path.unlink(missing_ok=True)
        self.trainers: queue.SimpleQueue[Trainer] = queue.SimpleQueue()
        self.waiting, self.ranks = "", 1
        self.slots, self.refusal, self.timeout_seconds = slots.name, refusal, timeout_seconds
        self.opened = trainer_pb2.Opened()
        self.opened.CopyFrom(opened)  # a test may change its own
        self._listening = packet_socket.new()
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def trainer(self) -> Trainer:
        """Return the next connection."""
        return self.trainers.get(timeout=SECONDS)

    def replaced(self, trainer: Trainer) -> Trainer:
        """End this process, of which `trainer` is a connection. Return that to the next one."""
        self.close()
        trainer.close()
        self._later.append(Sidecar(self.folder, self._number + 1))
        return self._later[-1].trainer()

    def close(self) -> None:
        """Stop accepting connections. Close the sidecar that has replaced this one, too."""
        for later in self._later:
            later.close()
        with contextlib.suppress(OSError):  # closed before
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(SECONDS)

    def _accept(self) -> None:
        with self._listening, contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                self.trainers.put(Trainer(sock, self))


def opened(folder: Path, timeout: float = SECONDS) -> Consumer:
    consumer = Consumer(folder, "", timeout)
    consumer.open(types_pb2.Job(), b"", 1)
    return consumer


def begun(sidecar: Sidecar) -> tuple[Consumer, Trainer, int]:
    """Return a consumer whose sidecar has received the start of its epoch."""
    consumer = opened(sidecar.folder)
    trainer = sidecar.trainer()
    generation = consumer.begin()
    assert trainer.start().generation == generation
    return consumer, trainer, generation
