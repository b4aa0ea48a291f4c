"""The consumer of one input: epochs of units, over any number of sidecar processes.

This module is long because its methods share the state that two locks protect.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from distributed_input.api.errors import (
    ConfigError,
    DistributedInputError,
    FencedError,
    PositionError,
    SpecError,
    UnavailableError,
)
from distributed_input.api.files import closed_prefix
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.link.trainer.slots import Batch
from distributed_input.link.trainer.trainer_end import Channel, SidecarDisconnected
from distributed_input.order import identity
from distributed_input.order.jobs import is_same
from distributed_input.rows.decode import decode
from distributed_input.rows.elements import ElementSpec
from distributed_input.trainer import open_consumers
from distributed_input.trainer.batch_queue import BatchQueue
from distributed_input.trainer.epoch_state import (
    EpochState,
    StepCounter,
    epoch_after,
    require_current,
    without_traceback,
)
from distributed_input.trainer.lineage import Lineage
from distributed_input.trainer.position_log import behind
from distributed_input.trainer.session import SidecarSession

_BURST_UNITS = 64
_POLL_SECONDS = 1.0  # until the watcher of a consumer that was not closed, only dropped, ends


class Consumer:
    """A thread-safe consumer of units; one epoch at a time.

    It connects the session (the sidecar's connection), the queue of received units and the epoch.
    Two locks protect them: `_receive_lock` for receiving and reconnecting, and
    `_state_lock` for the state that iterators and checkpoints share.

    Args:
        folder: the folder shared with the sidecar.
        name: the name of the input; empty if the sidecar serves one input.
        timeout: seconds to wait for a sidecar, initially and after the end of one.
        job: the name of the job; empty: the input's own job.
        accept_changed_dataset: restore positions of another dataset too.
        rank: the rank of this process, if the program sets it; None: as a launcher sets it.
        lineage: units name their rows.

    Attributes:
        source: the folder of the sidecar, the full name of the job, the consumer's index
            and the rank of this process.
        prefetches: units are prefetched and no counter counts the loop's steps.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        timeout: float,
        job: str = "",
        accept_changed_dataset: bool = False,
        rank: trainer_pb2.Rank | None = None,
        lineage: bool = False,
    ) -> None:
        self._session = SidecarSession(folder, name, timeout, job, rank, lineage)
        self._accept_changed_dataset = accept_changed_dataset
        self._queue = BatchQueue()
        self._receive_lock = threading.Lock()
        self._state_lock = threading.RLock()
        self._epoch: EpochState | None = None
        self._restored: trainer_pb2.Position | None = None
        self._restored_by = 0  # a thread
        self._used_generation = 0  # of a job that was read before on this connection
        self._step_counter: StepCounter | None = None
        self.prefetches = False
        self._connect(timeout)
        process = self.welcome.consumer, self._session.process
        self.source = folder, self.welcome.config.name, process
        open_consumers.add(self)

    @property
    def job(self) -> str:
        """The name of the job; empty: the input's own job."""
        return self._session.job

    @property
    def welcome(self) -> trainer_pb2.Welcome:
        """The current sidecar's answer to the handshake."""
        return self._session.welcome

    @property
    def opened(self) -> trainer_pb2.Opened:
        """The current sidecar's answer to the opened job."""
        return self._session.opened

    @property
    def spec(self) -> ElementSpec:
        """The spec of a row, or of a whole element."""
        return ElementSpec.from_json(self.opened.job.row_spec)

    # Opening.

    def open(self, draft: types_pb2.Job, dataset: bytes, replicas: int) -> trainer_pb2.Opened:
        """Open the job with this trainer's dataset, or with the one that the resource names.

        Raises DistributedInputError if it is rejected, or not opened in time.
        """
        with self._receive_lock:
            before = self.opened.job
            self._session.define_job(draft, dataset, replicas)
            deadline = self._session.reconnect_deadline()
            while True:
                try:
                    self._session.open_job()
                    self._session.mark_open()
                    self._end_job(before)
                    return self._session.opened
                except SidecarDisconnected as error:
                    self._session.wait_for_next(deadline, error)
                    self._connect(self._session.timeout)

    def _end_job(self, before: types_pb2.Job) -> None:
        """End the epochs that were read before the job was opened again, or another one."""
        with self._state_lock:
            last = self._epoch
            if last is None:
                return
            # The sidecar may have read ahead under the next generation.
            self._used_generation = last.generation + 1
            if is_same(before, self.opened.job):
                last.generation = self._used_generation
            else:
                self._epoch = None

    def _connect(self, timeout: float) -> None:
        self._session.connect(timeout)
        _watch(weakref.ref(self), self._session.channel)

    # Epochs.

    @property
    def generation(self) -> int:
        """The number of the running epoch on this connection; 0 before the first."""
        return self._epoch.generation if self._epoch is not None else 0

    def begin(self) -> int:
        """Start the next epoch, drop the rest of the running one, and return its generation.

        The first epoch after `restore` continues there, and one after an error where the loop was.

        Raises:
            PositionError: the restored position belongs to another dataset.
            DistributedInputError: the consumer is closed, or fenced for good.
        """
        self._session.check_open()
        last = self._epoch
        if last is not None and last.error is not None:
            if isinstance(last.error, FencedError):
                last.check_error()
            if self._restored is None:
                self._restored = self.position(self.requested_units())
        with self._state_lock:
            self._session.check_open()
            position = self._restored
            if position is not None and position.format == identity.FORMAT and not position.job:
                position = self._session.epoch_start(0)  # saved before the job was opened
            if position is not None:
                if self._accept_changed_dataset:
                    identity.accept_dataset(position, self.opened.job)
                identity.check(position, self.opened.job)
                # The start of an epoch belongs to any list. The positions that follow do not.
                position.excluded = identity.exclusions(self.opened.job)
            self._restored = None
            self._epoch = epoch = epoch_after(last, position, self._used_generation)
            epoch.counter = self._step_counter
            epoch.iterator = epoch.counter.iterators if epoch.counter is not None else 0
            if position is not None and position.end:
                position = None  # the new epoch starts at its beginning
            if position is not None:
                epoch.positions.append(0, position)
            if last is not None:
                self._report(last)
            self._session.start(
                trainer_pb2.StartEpoch(
                    generation=epoch.generation, epoch=epoch.epoch, position=position
                )
            )
        return epoch.generation

    def units(self, generation: int | None = None) -> Iterator[Batch]:
        """Yield the units of the epoch `generation`, or of a new epoch.

        Raises:
            DistributedInputError: the sidecar or a worker failed, or another iterator began.
        """
        generation = self._start(generation)
        while True:
            batch = self._next_batch(generation)
            if batch is None:
                return
            yield batch
            del batch  # do not hold its slot while the next one is awaited

    def decoded(
        self,
        decode_unit: Callable[[Batch], Any],
        generation: int | None = None,
        *,
        writable: bool = False,
    ) -> Iterator[Any]:
        """Yield what `decode_unit` makes of the units of an epoch, as `units`.

        `writable`: the program may write to the memory of what it makes. If other processes read
        the same units, it gets copies.

        Its SpecError ends the loop. The other trainers get it, too: they would wait for this one.
        """
        copies = writable and self.welcome.readers > 1
        for batch in self.units(generation):
            try:
                batch = batch.copied() if copies else batch
                value = decode_unit(batch)
            except SpecError as error:
                if (epoch := self._epoch) is not None:
                    self._report(epoch, str(error))
                raise
            del batch  # do not hold its slot while the next one is awaited
            yield value
            del value

    def arrays(self, generation: int) -> Iterator[Any]:
        """Yield the units of an epoch as nested numpy arrays, as `units`."""
        spec, whole = self.spec, not self.opened.unit_rows
        return self.decoded(
            lambda batch: decode(spec, None if whole else batch.rows, batch.buffers), generation
        )

    def bursts(self, generation: int | None = None) -> Iterator[list[Batch]]:
        """Yield the units of an epoch, as `units`, in lists: units that arrived together."""
        generation = self._start(generation)
        while True:
            batch = self._next_batch(generation)
            if batch is None:
                return
            burst = [batch]
            del batch
            while self._queue.has_next(generation) and len(burst) < _BURST_UNITS:
                try:
                    more = self._next_batch(generation)
                except DistributedInputError:
                    break  # the next call raises it again, behind the units that were read
                if more is None:
                    break
                burst.append(more)
                del more
            yield burst
            del burst

    def has_arrived(self) -> bool:
        """Return whether the next unit of the epoch, or its end, can be read without a wait."""
        if not self._receive_lock.acquire(blocking=False):
            return False  # another thread receives, or reconnects
        try:
            if not self._queue.has_next(self.generation) and self._session.is_open:
                for message in self._session.drain():
                    self._add(message)
        except DistributedInputError as error:
            self._fail(error)
        finally:
            self._receive_lock.release()
        return self._queue.has_next(self.generation)

    def _start(self, generation: int | None) -> int:
        """Mark an epoch as started. Return its generation: by default that of the next epoch."""
        with self._state_lock:
            current = self._epoch
            unread = current if current is not None and not current.started else None
            if unread is not None and isinstance(unread.error, PositionError):
                unread = None  # restored before its first unit
        if generation is None:
            generation = unread.generation if unread is not None else self.begin()
        with self._state_lock:
            if self._epoch is not None and self._epoch.generation == generation:
                self._epoch.started = True
        return generation

    def _next_batch(self, generation: int) -> Batch | None:
        """Return the next unit, or None at the end of the epoch."""
        if self._receive_lock.locked():
            self._wait_for_reconnection()
        with self._receive_lock:
            while True:
                epoch = require_current(self._epoch, generation)
                try:
                    item = self._queue.pop(generation)
                    if item is not None:
                        channel, received = item
                        if isinstance(received, trainer_pb2.Unit):
                            return self._read(channel, received, epoch)
                        epoch.ended = True
                        self._report(epoch)
                        self._session.channel.mark_idle()
                    if epoch.ended:
                        return None
                    self._wait_for_units(epoch)
                except DistributedInputError as error:
                    self._fail(error)
                    raise

    def _wait_for_reconnection(self) -> None:
        """Wait for another thread, which connects to the next sidecar. The wait counts."""
        self._session.meter.begin_wait()
        with self._receive_lock:
            self._session.meter.end_wait(has_unit=False)

    def _wait_for_units(self, epoch: EpochState) -> None:
        """Receive one message, or continue with another sidecar."""
        epoch.check_error()
        meter, report_due = self._session.meter, False
        meter.begin_wait()
        try:
            if not self._session.is_open:
                raise SidecarDisconnected("the job is not open on it")
            message = self._session.receive(
                self._session.answer_deadline(), lambda: self._is_behind(epoch)
            )
            self._add(message)
        except SidecarDisconnected:
            self._reconnect()
        finally:
            report_due = meter.end_wait(has_unit=bool(self._queue))
        if report_due:
            self._report(epoch)

    def _is_behind(self, epoch: EpochState) -> bool:
        """Return whether the loop has requested units that were not read, or nothing counts it."""
        requested = epoch.requested_units(self._session.replicas)
        return requested is None or requested > epoch.units

    def _add(self, message: trainer_pb2.FromSidecar) -> None:
        """Queue the units of a message, or store a failure for the epoch that it names."""
        self._queue.add(self._session.channel, message)
        with self._state_lock:  # no epoch begins between the check and the store
            try:
                self._session.check_failure(message)
            except DistributedInputError as error:
                self._fail(error)

    def _fail(self, error: DistributedInputError) -> None:
        """Store the error of the current epoch, which another thread may have begun meanwhile."""
        with self._state_lock:
            if self._epoch is not None:
                self._epoch.error = without_traceback(error)

    def _read(self, channel: Channel, unit: trainer_pb2.Unit, epoch: EpochState) -> Batch:
        batch = channel.batch(unit)
        if self._session.lineage:
            with self._state_lock:
                epoch.lineage.append(unit)
        epoch.units += 1
        in_step = epoch.units % self._session.replicas
        self._session.meter.add_unit(unit.rows, ends_batch=not in_step)
        if unit.HasField("after"):
            with self._state_lock:
                epoch.positions.append(epoch.units, unit.after)
        if self._session.meter.report_due:
            self._report(epoch)
        return batch

    def _report(self, epoch: EpochState, failed: str = "") -> None:
        units = max(0, epoch.units - epoch.units_before)
        self._session.report(epoch.generation, units, failed)

    # Positions.

    def position(
        self, requested: int | None = None, epoch_over: bool = False
    ) -> trainer_pb2.Position:
        """Return the position of a loop that has requested `requested` units of this epoch.

        A loop that has requested more units than the epoch has, has seen the end of the epoch.

        Args:
            requested: the number of units; None: all that were received, and the end if it was.
            epoch_over: if `requested` is all that the epoch has, the loop has seen its end too.

        Raises:
            PositionError: the position is too old.
        """
        with self._state_lock:
            if self._restored is not None:
                return self._restored  # no unit was consumed since
            epoch, replicas = self._epoch, self._session.replicas
            if epoch is None:
                return self._session.epoch_start(0)
            consumed = epoch.units
            if requested is not None:
                consumed = epoch.consumed_units(requested, replicas)
            start = self._session.epoch_start(epoch.epoch)
            position = epoch.positions.at(consumed, self._session.units_per_step, start)
            identity.stamp(position, self.opened.job)
            seen = epoch.units
            if requested is not None:  # the last step may have seen the end
                seen = requested if epoch_over else requested - replicas
            position.end = epoch.ended and seen >= epoch.units
            return position

    def lineage(self, requested: int | None = None) -> Lineage:
        """Return the rows of the last step of a loop that has requested `requested` units.

        Args:
            requested: the number of units of this epoch; None: all that were received.

        Raises:
            ConfigError: the units do not name their rows.
            PositionError: the loop has no batch, or its last one is too old.
        """
        if not self._session.lineage:
            raise ConfigError("the batches do not name their rows: connect(..., lineage=True)")
        with self._state_lock:
            epoch, replicas = self._epoch, self._session.replicas
            if epoch is None or self._restored is not None:
                raise PositionError("no batch was read since the input was opened or restored")
            consumed = epoch.units
            if requested is not None:
                consumed = epoch.consumed_units(requested, replicas)
            # The last step of whole elements may have too few units. No loop gets it.
            consumed = min(consumed, epoch.units) // replicas * replicas
            return epoch.lineage.at(self.opened.job, epoch.epoch, consumed - replicas, consumed)

    def restore(self, position: trainer_pb2.Position) -> None:
        """Let the next epoch continue at `position`. Iterators of the running one raise."""
        with self._state_lock:
            self._restored, self._restored_by = position, threading.get_ident()
            if self._epoch is not None:
                self._epoch.stop_for_restore()
            if self._step_counter is not None:
                self._step_counter.invalidate()

    @property
    def can_move(self) -> bool:
        """Whether this thread has restored a position and an iterator may move to it.

        An iterator in another thread may belong to a loop that has ended.
        """
        return self._restored is not None and self._restored_by == threading.get_ident()

    def count_steps(self, counter: StepCounter | None, *, prefetches: bool = False) -> None:
        """Set what counts the steps of the loop in the next epochs, if anything does.

        With `prefetches`, TensorFlow prefetches units, and no counter counts the loop's steps.
        """
        self._step_counter, self.prefetches = counter, prefetches

    @property
    def counter(self) -> StepCounter | None:
        """What counts the steps of the loop in this epoch, if anything does."""
        return self._epoch.counter if self._epoch is not None else None

    def requested_units(self) -> int | None:
        """Return how many units of this epoch the loop has requested; None without a counter."""
        if self._epoch is None:
            return None
        return self._epoch.requested_units(self._session.replicas)

    @property
    def received_units(self) -> int:
        """The number of units of the running epoch that were read."""
        return self._epoch.units if self._epoch is not None else 0

    # Another sidecar.

    def reconnect_from(self, channel: Channel) -> None:
        """Continue with the next sidecar, because `channel` has ended. The iterator raises errors.

        Other trainers may wait for this one before its loop requests a batch.
        """
        with self._receive_lock:
            epoch = self._epoch
            if channel is not self._session.channel or epoch is None or epoch.error is not None:
                return
            try:
                self._reconnect()
            except DistributedInputError as error:
                self._fail(error)

    def _reconnect(self) -> None:
        """Keep the units that the last sidecar sent, and continue the epoch on the next one."""
        session = self._session
        for message in session.drain():
            self._add(message)
        if self._epoch is not None:
            self._epoch.check_error()  # the failure that ended the connection
        deadline = session.reconnect_deadline()
        while True:
            try:
                self._connect(max(1.0, deadline - time.monotonic()))
                session.open_job()
                with self._state_lock:
                    assert self._epoch is not None
                    units = self._queue.keep_only(self._epoch.generation)
                    after = behind(self.position(), units, session.units_per_step)
                    identity.stamp(after, self.opened.job)  # units have positions without it
                    epoch = self._epoch
                    epoch.units_before = epoch.units + len(units)
                    begun = after.step or after.extra_units or len(after.weights)
                    session.resume(
                        trainer_pb2.StartEpoch(
                            generation=epoch.generation,
                            epoch=epoch.epoch,
                            position=after if begun else None,
                        )
                    )
                    session.report(session.generation, 0)  # the new one gets the totals
                return
            except SidecarDisconnected as error:
                session.wait_for_next(deadline, error)

    # Closing.

    def close(self) -> None:
        """Stop reading. Batches in use stay valid; iterators raise an error."""
        self.end(UnavailableError("the input is closed: connect() again"))

    def end(self, error: DistributedInputError) -> None:
        """Stop reading, as `close`; iterators raise `error`."""
        with self._state_lock:
            if self._session.error is not None:
                return
            self._session.error = error
        if self._epoch is not None:
            self._report(self._epoch)
        self._session.channel.shutdown()
        with self._receive_lock:  # `shutdown` wakes the thread that holds it
            self._queue.clear()
            self._session.channel.drop_unread()
            self._record_end()
            self._session.channel.release_job()

    def _record_end(self) -> None:
        """Record for later sidecars that this reader of several has closed the job."""
        welcome = self.welcome
        if welcome.readers <= 1:
            return
        prefix = closed_prefix(welcome.config.name, welcome.consumer, welcome.readers)
        with contextlib.suppress(OSError):  # the volume is full, or the run has ended
            self._session.channel.write_file(f"{prefix}{self._session.process}", b"")

    def stop(self, error: DistributedInputError) -> None:
        """Let iterators raise `error`. The sidecar keeps the job: the trainer may return."""
        self._session.error = self._session.error or error
        self._session.channel.shutdown()

    def disown(self) -> None:
        """Leave the connection to the parent of this process, a fork; iterators raise an error."""
        # Threads of the parent may hold the locks, and units in the queue are the parent's.
        self._receive_lock, self._state_lock = threading.Lock(), threading.RLock()
        self._queue = BatchQueue()
        error = self._session.disown()
        if self._epoch is not None:
            self._epoch.error = error


def _watch(consumer: weakref.ref[Consumer], channel: Channel) -> None:
    """Let the consumer reconnect when the channel ends, also if no thread waits for a batch.

    A trainer may compute for a long time between two batches. Other trainers may need the next
    sidecar of this one before that.
    """

    def wait() -> None:
        while not channel.wait_for_hangup(_POLL_SECONDS):
            if consumer() is None:
                return
        remaining = consumer()
        if remaining is not None:
            remaining.reconnect_from(channel)

    threading.Thread(target=wait, name="sidecar-watch", daemon=True).start()
