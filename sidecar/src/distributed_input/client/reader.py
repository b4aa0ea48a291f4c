"""One reader of one input: epochs as generations of units, over any number of sidecars' lives."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import (
    ConfigError,
    DistributedInputError,
    FencedError,
    PositionError,
    UnavailableError,
    from_kind,
)
from distributed_input.api.files import DATASET_PREFIX
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL, check_protocol
from distributed_input.client.channel import Channel, SidecarGone
from distributed_input.client.reconnect import watch

_POLL_SECONDS = 2.0
_PROGRESS_SECONDS = 0.5
_GRACE_SECONDS = 30.0  # beyond the sidecar's own deadline, which has the better message
_BURST_UNITS = 64
_HISTORY = 4096  # steps whose positions are kept: more than any prefetch runs ahead


@dataclass(frozen=True)
class Batch:
    """A unit as it lies in shared memory.

    Attributes:
        rows: how many.
        buffers: of the row spec's columns, 1-D uint8, read-only.
    """

    rows: int
    buffers: list[NDArray[np.uint8]]


@dataclass
class _Epoch:
    """The running generation."""

    generation: int
    epoch: int
    units: int = 0  # received
    elsewhere: int = 0  # of those, from sidecars that are gone
    started: bool = False  # an iterator has taken it
    ended: bool = False
    error: DistributedInputError | None = None  # its last word; the next iterator goes on


_current: weakref.WeakValueDictionary[tuple[Path, str], Reader] = weakref.WeakValueDictionary()
_replacing = threading.Lock()  # of the readers of this process, by folder and job


class Reader:
    """Reads units; thread-safe; one epoch at a time.

    Args:
        folder: shared with the sidecar.
        name: of the input, or empty where there is one.
        timeout: seconds to wait for a sidecar, at first and when one is gone.
        job: of the input; empty: its own.
    """

    def __init__(self, folder: Path, name: str, timeout: float, job: str = "") -> None:
        self._folder = folder
        self._name = name
        self.job = job
        self._timeout = timeout
        self._lock = threading.Lock()  # of receiving
        self._state = threading.RLock()  # of what iterators and checkpoints read
        self._open: trainer_pb2.Open | None = None
        self._dataset = b""
        self._epoch: _Epoch | None = None
        self._restored: trainer_pb2.Position | None = None
        # Serialized: a message keeps all of the packet that it came in.
        self._positions: deque[tuple[int, bytes]] = deque(maxlen=_HISTORY)
        # Units and ends that came and are not taken, with where from.
        self._pending: deque[tuple[Channel, trainer_pb2.Unit | trainer_pb2.EpochEnd]] = deque()
        self._opened_at: Channel | None = None  # where the job is open
        self._closed: DistributedInputError | None = None  # what iterators get
        self._counter: Any = None
        self.runs_ahead = False  # whoever asks for units prefetches, and nobody counts
        self._wait = 0.0
        self._first_at: float | None = None
        self._told_at = 0.0
        self.opened = trainer_pb2.Opened()
        self._channel, self.welcome = self._connect(timeout)
        self._replace_older()

    # Opening.

    def open(self, draft: types_pb2.Job, dataset: bytes, replicas: int) -> trainer_pb2.Opened:
        """Open the job: with the dataset of this trainer, or the one that the resource names.

        Raises:
            DistributedInputError: it is refused, or cannot be had in time.
        """
        request = trainer_pb2.Open(draft=draft, replicas=replicas)
        if dataset:
            request.dataset_id = hashlib.sha256(dataset).hexdigest()
            request.draft.dataset_id = request.dataset_id
        with self._lock:
            self._open, self._dataset = request, dataset
            while True:
                try:
                    self.opened = self._send_open()
                    self._opened_at = self._channel
                    return self.opened
                except SidecarGone:
                    self._channel, self.welcome = self._connect(self._timeout)

    def _send_open(self) -> trainer_pb2.Opened:
        assert self._open is not None
        request = trainer_pb2.Open()
        request.CopyFrom(self._open)
        if self._dataset:
            request.dataset_file = f"{DATASET_PREFIX}{uuid.uuid4().hex}"
            self._channel.write_file(request.dataset_file, self._dataset)
        self._channel.send(open=request)
        deadline = time.monotonic() + self.welcome.timeout_seconds + _GRACE_SECONDS
        while True:
            message = self._next_message(deadline)
            if message.WhichOneof("message") == "opened":
                return message.opened

    def _connect(self, timeout: float) -> tuple[Channel, trainer_pb2.Welcome]:
        deadline = time.monotonic() + timeout
        while True:
            self._check_open()
            try:
                channel = Channel(self._folder, 5.0)
                hello = trainer_pb2.Hello(protocol=PROTOCOL, input=self._name, job=self.job)
                channel.send(hello=hello)
                self._channel = channel
                self._check_open()  # before this, `end` did not know the channel to wake us by
                message = self._next_message(deadline)
                welcome = message.welcome
                check_protocol(welcome.protocol, "the sidecar")
                self._check_job(welcome)
                channel.map_ring(welcome.ring_file, welcome.ring_bytes)
                watch(self, channel)
                return channel, welcome
            except (UnavailableError, SidecarGone, FileNotFoundError) as error:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"no sidecar at {self._folder} for {timeout:.0f} s ({error}): start the "
                        "trainer with `distributed-input run FILE -- COMMAND`, or label its pod "
                        'distributed-input.dev/inject: "true"'
                    ) from error
                time.sleep(0.05)

    def _check_job(self, welcome: trainer_pb2.Welcome) -> None:
        """Do not read the input's own job in the place of another."""
        if welcome.job != self.job:
            raise ConfigError(
                f"the sidecar knows nothing of jobs, so job {self.job!r} of input {welcome.input} "
                "cannot be read: upgrade the sidecar's image"
            )

    # Epochs.

    def begin(self) -> int:
        """Start the next epoch, dropping the rest of the running one; its generation.

        The first epoch after a restore goes on where the checkpoint was made, and one after an
        error where the loop was.

        Raises:
            DistributedInputError: the reader is closed, or fenced off for good.
        """
        last = self._epoch
        if last is not None and isinstance(last.error, FencedError):
            raise _again(last.error)
        if last is not None and last.error is not None and self._restored is None:
            self._restored = self.position(self.asked_units())
        with self._state:
            self._check_open()
            position, self._restored = self._restored, None
            generation = last.generation + 1 if last is not None else 1
            if position is not None:
                generation += 1  # the sidecar may have begun the next epoch under the other number
            if position is not None and not position.end:
                epoch = position.epoch
            elif position is not None:
                epoch, position = position.epoch + 1, None
            else:
                epoch = last.epoch + 1 if last is not None else 0
            self._epoch = _Epoch(generation, epoch)
            self._positions.clear()
            if position is not None:
                self._positions.append((0, position.SerializeToString()))
            if last is not None:
                self._tell_progress(last)
            start = trainer_pb2.StartEpoch(generation=generation, epoch=epoch, position=position)
            try:
                # Whoever is on the way to the next sidecar starts there what runs by then.
                if self._opened_at is self._channel:
                    self._channel.send(start=start)
            except SidecarGone:
                pass  # the next receive connects again and starts from here
        return generation

    def units(self, generation: int | None = None) -> Iterator[Batch]:
        """The units of a generation: of one begun, or of a new one.

        Raises:
            DistributedInputError: what the sidecar or a worker met, or another iterator began.
        """
        with self._state:
            current = self._epoch
            fresh = current is not None and not current.started
        if generation is None:
            generation = current.generation if fresh and current is not None else self.begin()
        with self._state:
            if self._epoch is not None and self._epoch.generation == generation:
                self._epoch.started = True
        while True:
            batch = self._receive(generation)
            if batch is None:
                return
            yield batch
            del batch  # or it would be held while the next one is awaited

    def bursts(self) -> Iterator[list[Batch]]:
        """As `units`, but units that came together together."""
        for batch in self.units():
            burst = [batch]
            del batch
            while self._pending and len(burst) < _BURST_UNITS:
                more = self._receive(self.generation)
                if more is None:
                    break
                burst.append(more)
            yield burst
            del burst

    def _receive(self, generation: int) -> Batch | None:
        """The next unit, or None at the epoch's end."""
        with self._lock:
            while True:
                epoch = self._epoch
                if epoch is None or epoch.generation != generation:
                    raise FencedError(
                        "another iterator of this input has begun its epoch: iterate one at a "
                        "time, or give the second a job of its own: connect(..., job=...)"
                    )
                if not self._pending:
                    if epoch.ended:
                        return None
                    self._wait_for_units(epoch)
                    continue
                channel, came = self._pending.popleft()
                if isinstance(came, trainer_pb2.EpochEnd):
                    if came.generation == epoch.generation:
                        epoch.ended = True
                        self._tell_progress(epoch)
                        self._channel.be_idle()
                elif came.generation != epoch.generation:
                    channel.release(came.slot)
                else:
                    return self._accept(channel, came, epoch)

    def _wait_for_units(self, epoch: _Epoch) -> None:
        """Receive one message, or go on with another sidecar."""
        if epoch.error is not None:
            raise _again(epoch.error)
        began = time.monotonic()
        deadline = began + self.welcome.timeout_seconds + _GRACE_SECONDS
        try:
            try:
                if self._opened_at is not self._channel:
                    raise SidecarGone("it does not know the job")
                self._take(self._channel, self._next_message(deadline))
                if self._pending:
                    self._count_wait(began, epoch)
            except SidecarGone:
                self._go_on_elsewhere()
        except DistributedInputError as error:
            epoch.error = _again(error)
            raise

    def _take(self, channel: Channel, message: trainer_pb2.FromSidecar) -> None:
        """Take up what a message brings: units, or an epoch's end."""
        kind = message.WhichOneof("message")
        if kind == "failure":  # the last word of a sidecar that is gone: fenced, or refused
            self._meet(message.failure)
        elif kind == "unit":
            self._pending.append((channel, message.unit))
        elif kind == "units":
            self._pending.extend((channel, unit) for unit in message.units.units)
        elif kind == "end":
            self._pending.append((channel, message.end))

    def _accept(self, channel: Channel, unit: trainer_pb2.Unit, epoch: _Epoch) -> Batch:
        epoch.units += 1
        if unit.HasField("after"):
            with self._state:
                self._positions.append((epoch.units, unit.after.SerializeToString()))
        return Batch(unit.rows, channel.slot_buffers(unit))

    # Positions.

    def position(self, asked: int | None = None, over: bool = False) -> trainer_pb2.Position:
        """Where the loop stands after asking for `asked` units of the running epoch.

        Asking for more units than there are means that the loop has seen the epoch's end.

        Args:
            asked: in this generation; None: all that were received, and the end if it was.
            over: if that is all that there are, the loop has seen the end, too.

        Raises:
            PositionError: so long ago that it is not known any more.
        """
        with self._state:
            if self._restored is not None:
                return self._restored  # nothing consumed since
            epoch = self._epoch
            if epoch is None:
                return self._start_position(0)
            consumed = epoch.units if asked is None else min(asked, epoch.units)
            known = [(at, where) for at, where in self._positions if at <= consumed]
            if not known and self._positions and self._positions[0][0] > self._per_step:
                raise PositionError(
                    f"the loop is more than {_HISTORY} steps behind what was prefetched: "
                    "prefetch less"
                )
            if known:
                at, saved = known[-1]
                position = trainer_pb2.Position.FromString(saved)
            else:
                at, position = 0, self._start_position(epoch.epoch)
            self._add_units(position, consumed - at)
            seen = epoch.units if asked is None else asked - 1 + over
            position.end = epoch.ended and seen >= epoch.units
            return position

    def _add_units(self, position: trainer_pb2.Position, units: int) -> None:
        if units:
            steps, position.extra_units = divmod(position.extra_units + units, self._per_step)
            position.step += steps

    def count_by(self, counter: Any, *, runs_ahead: bool = False) -> None:
        """Let a variable count the steps that the loop has asked for from now on; None: nobody."""
        self._counter, self.runs_ahead = counter, runs_ahead

    def asked_units(self) -> int | None:
        """Units that the loop has asked for in this generation; None where nobody counts."""
        if self._counter is None:
            return None
        return int(self._counter.numpy()) * self._per_step

    @property
    def generation(self) -> int:
        """Of the running epoch; 0 before the first."""
        return self._epoch.generation if self._epoch is not None else 0

    @property
    def begun(self) -> bool:
        """An epoch has begun on this connection."""
        return self._epoch is not None

    def restore(self, position: trainer_pb2.Position) -> None:
        """Let the next epoch that begins go on from `position`."""
        with self._state:
            self._restored = position

    @property
    def _per_step(self) -> int:
        return max(1, self.opened.units_per_step)

    def _start_position(self, epoch: int) -> trainer_pb2.Position:
        job = self.opened.job
        return trainer_pb2.Position(
            job=job.name,
            epoch=epoch,
            consumers=max(1, self.welcome.consumers),
            consumer=self.welcome.consumer,
            partitions=job.partitions,
            global_batch_size=job.global_batch_size,
            seed=job.seed,
        )

    # The wire.

    def leave(self, channel: Channel) -> None:
        """`channel` has ended: have the next sidecar go on, before anybody asks for a batch.

        Other trainers may wait for ours, in a collective, and theirs for what only our sidecar can
        tell them. What goes wrong is for the iterator to raise.
        """
        with self._lock:
            epoch = self._epoch
            if channel is not self._channel or epoch is None or epoch.error is not None:
                return
            try:
                self._go_on_elsewhere()
            except DistributedInputError as error:
                epoch.error = _again(error)

    def _go_on_elsewhere(self) -> None:
        """The sidecar is gone: keep what it sent last, find the next one, hand it the position."""
        if self._first_at is not None:
            self._wait, self._first_at = 0.0, time.monotonic()  # the next sidecar counts anew
        for message in self._channel.rest():
            self._take(self._channel, message)
        timeout = max(self._timeout, self.welcome.timeout_seconds)
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._channel, self.welcome = self._connect(deadline - time.monotonic())
                self.opened = self._send_open()
                with self._state:
                    self._channel.send(start=self._start_again())
                    self._opened_at = self._channel
                return
            except SidecarGone as error:  # that one as well
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"the sidecar at {self._folder} ends again and again: see its log"
                    ) from error

    def _start_again(self) -> trainer_pb2.StartEpoch:
        """What lets another sidecar go on behind all that has come."""
        epoch = self._epoch
        assert epoch is not None
        self._drop_all_but(epoch.generation)
        mine = [came for _, came in self._pending if isinstance(came, trainer_pb2.Unit)]
        epoch.elsewhere = epoch.units + len(mine)
        position = trainer_pb2.Position()
        position.CopyFrom(self.position())
        for unit in mine:
            if unit.HasField("after"):
                position.CopyFrom(unit.after)
            else:
                self._add_units(position, 1)
        begun = position.step or position.extra_units
        return trainer_pb2.StartEpoch(
            generation=epoch.generation, epoch=epoch.epoch, position=position if begun else None
        )

    def _drop_all_but(self, generation: int) -> None:
        """Hand back what came of other generations: another sidecar begins the next one anew."""
        came, self._pending = self._pending, deque()
        for channel, message in came:
            if message.generation == generation:
                self._pending.append((channel, message))
            elif isinstance(message, trainer_pb2.Unit):
                channel.release(message.slot)

    def _next_message(self, deadline: float) -> trainer_pb2.FromSidecar:
        """The next message; a failure is raised, and a long wait reported.

        A sidecar that tells what it waits for has a deadline of its own for that.
        """
        patience = deadline - time.monotonic()
        while True:
            message = self._channel.receive(_POLL_SECONDS)
            if message is None:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"the sidecar at {self._folder} said nothing in time: is it stopped, or "
                        "starved of CPU? See its log"
                    )
                generation = self._epoch.generation if self._epoch is not None else 0
                self._channel.send(
                    progress=trainer_pb2.Progress(
                        waiting=True, generation=generation, wait_seconds=self._wait
                    )
                )
                continue
            kind = message.WhichOneof("message")
            if kind == "failure":
                self._meet(message.failure)
            elif kind != "waiting":
                return message
            deadline = time.monotonic() + patience

    def _meet(self, failure: trainer_pb2.Failure) -> None:
        """Raise it, but for that of an epoch whose rest the loop has dropped, or not asked for."""
        if failure.generation in (0, self.generation):
            raise from_kind(failure.kind, failure.message)

    def _count_wait(self, began: float, epoch: _Epoch) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now  # what start-up takes is no stall
            self._tell_progress(epoch)  # that it waits no more
            return
        self._wait += now - began
        if now - self._told_at > _PROGRESS_SECONDS:
            self._tell_progress(epoch)

    def _tell_progress(self, epoch: _Epoch) -> None:
        now = self._told_at = time.monotonic()
        progress = trainer_pb2.Progress(
            units=max(0, epoch.units - epoch.elsewhere),
            wait_seconds=self._wait,
            wall_seconds=now - self._first_at if self._first_at is not None else 0.0,
            generation=epoch.generation,
        )
        try:
            self._channel.send(progress=progress)
        except SidecarGone:
            pass

    def close(self) -> None:
        """Stop. Batches still held stay valid; iterators end with an error."""
        self.end(UnavailableError("the input is closed: connect() again"))

    def end(self, error: DistributedInputError) -> None:
        """As `close`; `error` is what iterators end with."""
        with self._state:
            if self._closed is not None:
                return
            self._closed = error
        if self._epoch is not None:
            self._tell_progress(self._epoch)
        self._channel.shutdown()
        with self._lock:  # whoever held it was woken
            for channel, came in self._pending:
                if isinstance(came, trainer_pb2.Unit):
                    channel.release(came.slot)
            self._pending.clear()
            self._channel.drop_unread()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise _again(self._closed)

    def _replace_older(self) -> None:
        """End the older reader of this input in this process: the sidecar serves one.

        What it was sent and has not read would take up room in the ring as long as it lives.
        """
        key = self._folder, self.welcome.config.name
        with _replacing:
            older = _current.get(key)
            _current[key] = self
        if older is not None:
            older.end(
                FencedError(
                    f"input {self.welcome.input} was opened again: one reader at a time. Close the "
                    "first, or give the second a job of its own: connect(..., job=...)"
                )
            )


def _again(error: DistributedInputError) -> DistributedInputError:
    """The same error, to be kept or raised once more: a traceback holds on to batches."""
    return type(error)(*error.args)
