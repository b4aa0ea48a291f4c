"""The session of one trainer: it opens a job, starts epochs, and releases slots."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from google.protobuf.message import DecodeError

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2
from distributed_input.api.protocol import PROTOCOL, check_protocol
from distributed_input.link.errors import Cancelled, internal_error
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.order.share import loop_units, share_of
from distributed_input.runtime import logs
from distributed_input.sidecar.delivery.epoch_sequence import EpochSequence
from distributed_input.sidecar.delivery.outbox import UnitOutbox, failure_message
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.job_sessions import ConsumerStats
from distributed_input.sidecar.inputs.reader_group import GroupReading
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams.read_ahead import UsefulWorkers

_log = logs.get("sidecar.connection")
_numbers = itertools.count()


class _Reading:
    """What a session reads, once the trainer has chosen its input."""

    def __init__(self, job_input: JobInput, socket: TrainerSocket, session: TrainerSession) -> None:
        self.input = job_input
        self.outbox = UnitOutbox(socket, job_input.slots)
        self.source: RowSource | None = None
        self.loop_units = 1  # units that the loop takes in a step
        self._session, self._gone = session, socket.closed
        keep_facts = partial(job_input.sessions.keep_facts, session)
        self.epochs = EpochSequence(job_input.slots, self.outbox, keep_facts)

    def open(
        self, request: trainer_pb2.Open, dataset: bytes, report: Callable[[str], None]
    ) -> trainer_pb2.Opened:
        """Open the job; see `JobInput.open_job`."""
        self.epochs.close()
        job = self.input.open_job(request.draft, dataset, report)
        consumer, consumers = self.input.consumer, self.input.consumers
        self.loop_units = loop_units(job, request.replicas)
        share = share_of(job, consumer, consumers, max(1, request.replicas))
        self.source = replace(self.input.row_source(job), lineage=request.lineage)
        self.epochs.open(self.source, share)
        return trainer_pb2.Opened(
            job=job,
            unit_rows=0 if share.whole else share.unit_rows,
            units_per_step=share.units,
            lineage=request.lineage,
        )

    def start(self, start: trainer_pb2.StartEpoch) -> None:
        """Start an epoch."""
        self.epochs.start(start)

    def fail(self, generation: int, error: str) -> None:
        """Record an error of the trainer's loop."""
        self.epochs.fail(generation, error)

    def stop(self, *, closed: bool) -> None:  # noqa: ARG002 - of one reader, both are the same
        """Stop the epoch. The trainer still releases slots."""
        self.epochs.cancel()
        with contextlib.suppress(Cancelled):
            self.outbox.flush(self._gone)  # sends nothing, releases slots
        self.input.sessions.leave(self._session, self.epochs.facts())

    def close(self) -> None:
        """Stop the epoch and release all slots: the trainer is gone."""
        self.epochs.stop()
        self.outbox.release_all()
        self.outbox.end_times()
        self.input.sessions.detach(self._session, self.epochs.facts())


class TrainerSession:
    """Serves one connected socket until it closes.

    One thread handles the trainer's messages. The thread of the running epoch sends units.

    Attributes:
        number: increases with each connection that the sidecar accepts.
        readers: see `JobSession`.
    """

    def __init__(self, sock: socket.socket, registry: InputRegistry) -> None:
        self.number = next(_numbers)
        self._socket = TrainerSocket(sock)
        self._registry = registry
        self.readers = 1
        self._reading: _Reading | GroupReading | None = None
        self._released = False  # the trainer has closed the job

    def serve(self) -> None:
        """Handle messages until the trainer closes the connection.

        After an error, or once another reader has taken over, only releases and reports are
        handled: the slots that the trainer holds stay valid until it releases them or is gone.
        """
        try:
            while not self._is_over and (packet := self._socket.receive()):
                self._receive(trainer_pb2.FromTrainer.FromString(packet))
        except OSError:
            pass  # the trainer is gone
        except DecodeError as error:
            _log.warning("the trainer sent something else than messages", cause=str(error))
        finally:
            self.close()

    @property
    def _is_over(self) -> bool:
        """Whether the trainer has closed the job and released all slots."""
        return self._released and not (self._reading and self._reading.outbox.holds_slots)

    def _receive(self, message: trainer_pb2.FromTrainer) -> None:
        kind = message.WhichOneof("message")
        if kind == "release":
            if self._reading is not None:
                self._reading.outbox.release(message.release.slots)
        elif kind == "progress":
            if self._reading is not None:  # also the last report of a trainer that was replaced
                self._reading.outbox.record_progress(message.progress)
                self._reading.fail(message.progress.generation, message.progress.failed)
        elif kind == "close":
            self._release_job()
        elif not self._socket.closed.is_set():
            try:
                self._handle(message)
            except Cancelled:
                pass  # the session was closed meanwhile
            except DistributedInputError as error:
                self.end(error)
            except Exception as error:  # noqa: BLE001  a bug must be reported to the user
                _log.exception("connection failed")
                self.end(internal_error(error))

    def _handle(self, message: trainer_pb2.FromTrainer) -> None:
        kind = message.WhichOneof("message")
        if kind == "start":
            self._required().start(message.start)
        elif kind == "hello":
            self._hello(message.hello)
        elif kind == "open":
            self._open(message.open)
        else:
            raise ConfigError(
                "the trainer sent a message that this sidecar does not support: upgrade the sidecar"
            )

    def _hello(self, hello: trainer_pb2.Hello) -> None:
        check_protocol(hello.protocol, "the trainer's distributed-input package")
        if self._reading is not None:
            raise ConfigError(
                "the trainer sent Hello twice on one connection: connect again to read another job"
            )
        ranks, claimed = self._registry.ranks, hello.rank if hello.HasField("rank") else None
        rank = ranks.local_rank(claimed)
        readers = ranks.readers(claimed)
        try:
            self._reading = self._attach(hello, rank, readers)
        except Cancelled:  # the sidecar stops
            self.close()  # the trainer looks for the next one
            raise
        job = self._reading.input
        welcome = trainer_pb2.Welcome(
            protocol=PROTOCOL,
            input=job.name,
            consumer=job.consumer,
            consumers=job.consumers,
            slots_file=job.slots.path.name,
            slots_bytes=job.slots.size,
            config=job.config,
            from_trainer=job.from_trainer,
            timeout_seconds=job.timeout_seconds,
            ranks=ranks.each,
            readers=readers,
        )
        self._send(trainer_pb2.FromSidecar(welcome=welcome))

    def _attach(self, hello: trainer_pb2.Hello, rank: int, readers: int) -> _Reading | GroupReading:
        """Make this session a reader of the job that the trainer has chosen."""
        if readers == 1:
            alone = self._registry.attach(hello.input, hello.job, self, rank)
            return _Reading(alone, self._socket, self)
        reading = None
        while reading is None:  # a group that has just ended cannot be joined
            group = self._registry.join(hello.input, hello.job, self, rank, readers)
            reading = group.join(self, self._socket, hello.rank.reader)
        return reading

    def _open(self, request: trainer_pb2.Open) -> None:
        reading = self._required()
        dataset = b""
        if request.dataset_file:
            # Only the name is used, so that it can only be a file in the shared folder.
            file = reading.input.slots.path.parent / Path(request.dataset_file).name
            dataset = file.read_bytes()
            file.unlink()
        opened = reading.open(request, dataset, self._report_wait)
        self._send(trainer_pb2.FromSidecar(opened=opened))

    def _report_wait(self, what: str) -> None:
        """Send the trainer what it waits for while the job is opened."""
        self._send(trainer_pb2.FromSidecar(waiting=trainer_pb2.Waiting(what=what)))

    def _required(self) -> _Reading | GroupReading:
        if self._reading is None:
            raise ConfigError("the trainer's first message must be Hello")
        return self._reading

    def _send(self, message: trainer_pb2.FromSidecar) -> None:
        if self._reading is not None:
            self._reading.outbox.send(message, self._socket.closed)
        else:
            self._socket.send(message, self._socket.closed)

    def fail(self, error: DistributedInputError) -> None:
        """Report an error that the trainer's iterator raises."""
        with contextlib.suppress(Cancelled):
            self._send(failure_message(error))

    def end(self, error: DistributedInputError) -> None:
        """Stop serving. The trainer reads the error, then the end, and still releases slots.

        Do not wait until the trainer reads, because the next session would wait too.
        """
        if self._socket.closed.is_set():
            return
        self._stop()
        self._socket.send_last(failure_message(error))

    def _release_job(self) -> None:
        """Stop serving, and release the job that the trainer has closed."""
        self._released = True
        self._stop()
        if self._reading is not None:
            self._reading.input.link.request_heartbeat()  # with the last counts
            self._registry.release(self._reading.input)

    def _stop(self) -> None:
        """Stop the epoch. The trainer still releases slots."""
        self._socket.closed.set()
        if self._reading is not None:
            self._reading.stop(closed=self._released)

    def close(self) -> None:
        """Stop the epoch and release all slots: the trainer is gone, or the sidecar stops."""
        self._socket.closed.set()
        if self._reading is not None:
            self._reading.close()
        self._socket.close()

    # Reports, except of a member of a group, which has its own.

    @property
    def _alone(self) -> _Reading | None:
        return self._reading if isinstance(self._reading, _Reading) else None

    @property
    def useful(self) -> UsefulWorkers:
        """How many workers the trainer can use now; none before it has opened the job."""
        source = self._alone.source if self._alone is not None else None
        return source.useful if source is not None else UsefulWorkers()

    def stats(self) -> ConsumerStats:
        """Return what the trainer has received in this session."""
        if self._alone is None:
            return ConsumerStats()
        outbox, epochs = self._alone.outbox, self._alone.epochs
        times = outbox.times()
        return ConsumerStats(
            epoch=epochs.epoch,
            rows=outbox.acks.rows,
            batches=outbox.acks.units // self._alone.loop_units,
            bytes=outbox.acks.bytes,
            wait_seconds=times.wait_seconds,
            wall_seconds=times.wall_seconds,
            finished=self._socket.closed.is_set() and epochs.has_ended,
            received=times.received,
            pauses=outbox.trainer_pauses,
            failed=epochs.failed,
            weights=epochs.weights,
        )

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts about the partitions that the session reads."""
        return self._alone.epochs.facts() if self._alone is not None else []
