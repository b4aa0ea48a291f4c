"""One trainer's connection: opens its job, starts its epochs, passes units and slots."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL, check_protocol
from distributed_input.assignment.share import Share, share_of
from distributed_input.runtime import logs
from distributed_input.sidecar.delivery import failures
from distributed_input.sidecar.delivery.ack_tracker import Received
from distributed_input.sidecar.dispatcher_link import ConsumerStats
from distributed_input.sidecar.inputs import Input
from distributed_input.sidecar.steps.epoch import EpochRun, Sink
from distributed_input.sidecar.steps.reading import Cancelled, Source

_log = logs.get("sidecar.connection")
PACKET_BYTES = 1 << 17  # the longest packet on the socket
_SMALL_BYTES = 256 << 10  # of a unit: a packet for each would cost as much as its rows
_KEPT_UNITS = 16  # in one packet


@dataclass
class _Seen:
    """What the trainer told of its waits."""

    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    waiting: bool = False


class Connection:
    """Serves one connected socket until it closes. One thread reads, the epoch's sends."""

    def __init__(
        self, sock: socket.socket, find: Callable[[str, str], Input], consumer: int, consumers: int
    ) -> None:
        self._socket = sock
        self._find = find
        self._consumer, self._consumers = consumer, consumers
        self._input: Input | None = None
        self._job: types_pb2.Job | None = None
        self._share: Share | None = None
        self._run: EpochRun | None = None
        self._ended: EpochRun | None = None  # others may still want its facts
        self._started = 0  # generation that the trainer reads
        self._epoch = 0  # that it reads
        self._changing = threading.Lock()  # of `_run`
        self._slots: set[int] = set()
        self._slots_lock = threading.Lock()
        self._seen = _Seen()
        self._kept: list[trainer_pb2.Unit] = []
        self._kept_lock = threading.Lock()
        self._received = Received()
        self._closed = threading.Event()

    def serve(self) -> None:
        """Handle messages until the trainer closes the connection.

        Behind an error, or for the older of two readers, only releases count: what the trainer
        holds stays as it is until it is given back, or the trainer is gone.
        """
        try:
            while packet := self._receive():
                self._take(trainer_pb2.FromTrainer.FromString(packet))
        except OSError:
            pass  # the trainer died; nothing is owed to it
        finally:
            self.close()

    def _take(self, message: trainer_pb2.FromTrainer) -> None:
        if message.WhichOneof("message") == "release":
            self._release(message.release.slots)
        elif not self._closed.is_set():
            try:
                self._handle(message)
            except Cancelled:
                pass  # nobody listens any more
            except DistributedInputError as error:
                self.end(error)
            except Exception as error:  # noqa: BLE001  a bug must reach the user
                _log.exception("connection failed")
                self.end(failures.unexpected(error))

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(PACKET_BYTES)
        except ConnectionResetError:
            # It closed with packets unread, which is told once. What it had sent is still there.
            return self._socket.recv(PACKET_BYTES)

    def fail(self, error: DistributedInputError) -> None:
        """Tell the trainer, whose iterator raises it."""
        try:
            self._send(failures.told(error), self._closed)
        except Cancelled:
            pass

    def close(self) -> None:
        """Stop the epoch and take back every slot: the trainer is gone, or this process will be."""
        self._closed.set()
        if self._run is not None:
            self._run.cancel()
        if self._input is not None:
            with self._slots_lock:
                for slot in self._slots:
                    self._input.ring.release(slot)
                self._slots.clear()
            self._input.detach(self, self.facts())
        self._socket.close()

    def end(self, error: DistributedInputError) -> None:
        """Stop serving. The trainer reads the error, then the end, and still hands slots back.

        Does not wait until it does: who takes its place would wait too.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        if self._run is not None:
            self._run.cancel()
        with contextlib.suppress(Cancelled):
            self._flush(self._closed)  # it sends nothing any more, and frees their slots
        if self._input is not None:
            self._input.detach(self, self.facts())
        telling = threading.Thread(target=self._end, args=(error,), name="last-word", daemon=True)
        telling.start()

    def _end(self, error: DistributedInputError) -> None:
        packet = failures.told(error).SerializeToString()
        try:
            while not self._try_send(packet):
                pass
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the trainer is gone

    # What the link reports.

    def stats(self) -> ConsumerStats:
        """What the trainer of this connection has seen; `Input.stats` adds the rest."""
        share, received = self._share, self._received
        return ConsumerStats(
            epoch=self._epoch,
            rows=received.rows,
            batches=received.units // share.units if share is not None else 0,
            bytes=received.bytes,
            wait_seconds=self._seen.wait_seconds,
            wall_seconds=self._seen.wall_seconds,
            finished=self._closed.is_set() and self._has_ended(),
        )

    @property
    def partitions(self) -> int:
        """That this connection's consumer reads; 0 before the job is open."""
        return len(self._share.partitions) if self._share is not None else 0

    def _has_ended(self) -> bool:
        """Whether the trainer was given the end of the epoch that it reads."""
        reading = [run for run in (self._ended, self._run) if run is not None]
        return any(
            run.done
            and run.generation == self._started
            and self._received.has_all_of(run.generation)
            for run in reading
        )

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Of the running epoch."""
        runs = (self._ended, self._run)
        return [fact for run in runs if run is not None for fact in run.facts()]

    # Messages.

    def _handle(self, message: trainer_pb2.FromTrainer) -> None:
        kind = message.WhichOneof("message")
        if kind == "progress":
            self._progress(message.progress)
        elif kind == "start":
            self._start(message.start)
        elif kind == "hello":
            self._hello(message.hello)
        elif kind == "open":
            self._open(message.open)
        else:
            raise ConfigError(
                "the trainer sent a message that this sidecar does not know: upgrade it"
            )

    def _progress(self, told: trainer_pb2.Progress) -> None:
        if told.waiting:
            self._seen = replace(self._seen, waiting=True)
            return
        self._seen = _Seen(told.wait_seconds, told.wall_seconds)
        self._received.told(told.generation, told.units)

    def _hello(self, hello: trainer_pb2.Hello) -> None:
        check_protocol(hello.protocol, "the trainer's distributed-input package")
        made = self._find(hello.input, hello.job)
        self._input = made
        made.attach(self)
        welcome = trainer_pb2.Welcome(
            protocol=PROTOCOL,
            input=made.name,
            consumer=self._consumer,
            consumers=self._consumers,
            ring_file=made.ring.path.name,
            ring_bytes=made.ring.size,
            config=made.config,
            from_trainer=made.from_trainer,
            timeout_seconds=made.timeout_seconds,
            job=made.job,
        )
        self._send(trainer_pb2.FromSidecar(welcome=welcome), self._closed)

    def _open(self, request: trainer_pb2.Open) -> None:
        made = self._required_input()
        dataset = b""
        if request.dataset_file:
            # A bare name: the trainer can only point into the folder that both share.
            file = made.ring.path.parent / Path(request.dataset_file).name
            dataset = file.read_bytes()
            file.unlink()
        job = made.open_job(request.draft, dataset)
        self._share = share_of(job, self._consumer, self._consumers, max(1, request.replicas))
        self._job = job
        opened = trainer_pb2.Opened(
            job=job,
            unit_rows=0 if self._share.whole else self._share.unit_rows,
            units_per_step=self._share.units,
        )
        self._send(trainer_pb2.FromSidecar(opened=opened), self._closed)

    def _start(self, start: trainer_pb2.StartEpoch) -> None:
        position = start.position if start.HasField("position") else None
        with self._changing:
            self._started, self._epoch = start.generation, start.epoch
            run = self._run
            if run is not None and run.generation == start.generation:
                # Begun ahead of time. A start that differs comes with another generation, for
                # units of this one are on their way.
                self._read_ahead(run)
                return
            if run is not None:
                run.cancel()
            self._begin(start.epoch, start.generation, position)

    def _sent(self, run: EpochRun) -> None:
        """All of an epoch is sent. Called by its thread, which `_start` may be waiting for."""
        while not self._changing.acquire(timeout=0.1):
            if run.cancelled:
                return
        try:
            self._read_ahead(run)
        finally:
            self._changing.release()

    def _read_ahead(self, run: EpochRun) -> None:
        """Begin the epoch behind one that is sent and being read: most likely it is wanted next."""
        job = self._job
        if job is None or run is not self._run or run.cancelled or self._closed.is_set():
            return
        if run.done and run.generation == self._started:
            self._ended = run
            if not job.epochs or run.epoch + 1 < job.epochs:
                self._begin(run.epoch + 1, run.generation + 1)

    def _begin(
        self, epoch: int, generation: int, position: trainer_pb2.Position | None = None
    ) -> None:
        made, job, share = self._required_input(), self._job, self._share
        if job is None or share is None:
            raise ConfigError("the trainer started an epoch before it opened the job")
        if job.epochs and epoch >= job.epochs:
            raise ConfigError(
                f"input {made.name} has {job.epochs} epochs (spec.epochs), and the trainer asks "
                f"for epoch {epoch + 1}: raise spec.epochs, or iterate fewer times"
            )
        made.remember(self, self.facts())
        made.link.facts.forget_before(epoch - 1)
        source = Source(
            job,
            made.link.pool,
            made.link.facts,
            made.streams,
            made.read_ahead,
            made.timeout_seconds,
            made.link.beat_soon,
            made.link.tell,
        )
        sink = Sink(
            made.ring,
            self._send,
            lambda: bool(self._kept),
            self._flush,
            lambda: self._seen.waiting,
            self._sent,
        )
        self._run = EpochRun(source, sink, share, epoch, generation, position)
        self._run.start()

    def _release(self, slots: Iterable[int]) -> None:
        with self._slots_lock:
            ours = self._slots.intersection(slots)
            self._slots -= ours
        for slot in ours:
            self._required_input().ring.release(slot)

    def _required_input(self) -> Input:
        if self._input is None:
            raise ConfigError("the trainer's first message must be Hello")
        return self._input

    def _send(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        """Send a message. Small units are kept back until there are several, or `_flush`.

        A unit's slot is this connection's from now on, whether the trainer gets it or not.
        """
        if message.WhichOneof("message") != "unit":
            self._flush(cancelled)
            self._send_packet(message, cancelled)
            return
        unit = message.unit
        with self._slots_lock:
            self._slots.add(unit.slot)
        self._received.sent(unit)
        with self._kept_lock:
            self._kept.append(unit)
            few = sum(unit.sizes) < _SMALL_BYTES and len(self._kept) < _KEPT_UNITS
            if few and not self._closed.is_set():
                return
        self._flush(cancelled)

    def _flush(self, cancelled: threading.Event) -> None:
        """Send the units that were kept back."""
        with self._kept_lock:
            units, self._kept = self._kept, []
        if not units:
            return
        try:
            if len(units) == 1:
                self._send_packet(trainer_pb2.FromSidecar(unit=units[0]), cancelled)
            else:
                many = trainer_pb2.Units(units=units)
                self._send_packet(trainer_pb2.FromSidecar(units=many), cancelled)
        except Cancelled:
            self._release([unit.slot for unit in units])
            raise

    def _send_packet(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        """Send one packet, waiting while the trainer has not read earlier ones."""
        packet = message.SerializeToString()
        while not (cancelled.is_set() or self._closed.is_set()):
            try:
                if self._try_send(packet):
                    return
            except OSError as error:
                raise Cancelled from error
        raise Cancelled

    def _try_send(self, packet: bytes) -> bool:
        """Whether there was room for it within a moment (see `main`). OSError: nobody reads."""
        try:
            self._socket.send(packet)
        except (BlockingIOError, TimeoutError):
            return False
        return True
