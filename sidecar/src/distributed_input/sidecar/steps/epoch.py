"""One pass of one trainer over its share of an epoch: rows in, units in the ring out.

A thread that turns partitions' rows into batches, in the order that `assignment` fixes, and
hands each unit to the connection. The ring and the socket bound how far it runs ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, types_pb2
from distributed_input.assignment import splits as assignment
from distributed_input.assignment.share import Share
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.sidecar.delivery import failures
from distributed_input.sidecar.delivery.slot_pool import Ring
from distributed_input.sidecar.delivery.units import UnitWriter
from distributed_input.sidecar.steps import resume
from distributed_input.sidecar.steps.reading import Cancelled, Reading, Source
from distributed_input.sidecar.steps.step_barrier import Lockstep
from distributed_input.sidecar.streams.partition import Start
from distributed_input.sidecar.streams.streams import Run

_log = logs.get("sidecar.epoch")
_TELL_SECONDS = 2.0  # for a dispatcher that is away
_POSITION_SECONDS = 0.02  # between positions told: an older one only replays a little more
_HELD_SECONDS = 30.0  # a trainer that waits and holds the whole ring this long is told so


@dataclass(frozen=True)
class Sink:
    """Where they go. `send` blocks while the trainer is behind; raises Cancelled on the event.

    A unit's slot is the sink's from then on. It may keep small units back to send several at
    once: until `flush`, or another message.
    """

    ring: Ring
    send: Callable[[trainer_pb2.FromSidecar, threading.Event], None]
    kept: Callable[[], bool]  # whether `send` kept something back
    flush: Callable[[threading.Event], None]  # sends that
    trainer_waits: Callable[[], bool]
    ended: Callable[[EpochRun], None]  # all is sent


class EpochRun:
    """Delivers one epoch, or the rest of it behind a position, as one generation of units."""

    def __init__(
        self,
        source: Source,
        sink: Sink,
        share: Share,
        epoch: int,
        generation: int,
        position: trainer_pb2.Position | None = None,
    ) -> None:
        self.epoch = epoch
        self.generation = generation
        self.position = position
        self.done = False
        self._job, self._sink, self._share = source.job, sink, share
        self._exchange, self._tell = source.exchange, source.tell
        self._columns = ElementSpec.from_json(source.job.row_spec).columns
        self._reading = Reading(
            source, share, epoch, sink.kept, self._flush, self._tell_waiting, sink.trainer_waits
        )
        self._cancelled = self._reading.cancelled
        self._base_rows = [0] * source.job.partitions
        self._base_step = 0
        self._steps = 0  # since the base
        self._units = 0
        self._told_at = float("-inf")
        self._skip = 0  # units of the first step that are read again, for the trainer has them
        self._begun = 0  # units of the first step that the trainer has and that are not read
        self._lockstep = Lockstep(self._reading, share, self._base_rows)
        self._thread = threading.Thread(target=self._run, name=f"epoch-{epoch}", daemon=True)

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop; units not yet sent are given back. Returns when the thread has ended."""
        self._reading.cancel()
        self._sink.ring.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def cancelled(self) -> bool:
        """Nobody wants it any more."""
        return self._cancelled.is_set()

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """What this run knows of its partitions, for the other consumers."""
        return self._reading.facts()

    # The thread.

    def _run(self) -> None:
        try:
            self._open()
            more = self._deliver_step()
            self._reading.read_ahead()
            while more:
                more = self._deliver_step()
            self._reading.close()
            self.done = True
            self._sink.ended(self)
        except Cancelled:
            pass
        except DistributedInputError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  a bug must reach the user, not end in silence
            _log.exception("epoch failed", epoch=self.epoch)
            self._fail(failures.unexpected(error))
        finally:
            self._reading.close()

    def _fail(self, error: DistributedInputError) -> None:
        try:
            self._sink.send(failures.told(error, self.generation), self._cancelled)
        except Cancelled:
            pass

    def _open(self) -> None:
        if self.position is None:
            for p in self._share.partitions:
                self._reading.open(p, Start())
            return
        if resume.same_cut(self.position, self._share):
            if self._job.order == types_pb2.ANY:
                self._begun = self.position.extra_units
            else:
                self._skip = self.position.extra_units
        base = resume.open_at(self._reading, self._share, self.position)
        self._base_step, self._base_rows[:] = base
        self._steps = self.position.step - self._base_step

    # Steps.

    def _deliver_step(self) -> bool:
        """One batch, as units. False at the epoch's end."""
        begun, self._begun = self._begun, 0
        writers = [self._writer() for _ in range(self._share.units - begun)]
        try:
            return self._deliver(writers, begun)
        finally:
            for writer in writers:
                writer.abandon()  # those of a step that was dropped, broken off or not needed

    def _deliver(self, writers: list[UnitWriter], begun: int) -> bool:
        need = self._share.batch - begun * self._share.unit_rows
        drop = self._job.remainder == types_pb2.DROP and not self._share.whole
        index = 0
        for run in self._batch_runs(need):
            start = run.start
            while start < run.stop:
                if not writers[index].room:
                    if not drop:
                        self._send(writers[index], after=False)
                    index += 1
                stop = min(run.stop, start + writers[index].room)
                writers[index].add(Run(run.block, start, stop))
                start = stop
            if not writers[index].room:
                self._mark(writers[index], begun + index + 1)
        rows = sum(writer.rows for writer in writers)
        # With drop the others are asked once our own rows are here, so that they hear of them
        # meanwhile: or all would wait for all.
        if rows == need and not (drop and not self._lockstep.all_have_full_step(self._steps)):
            return self._finish_step(writers[0 if drop else index :])
        if not self._lockstep.alone:
            self._exchange()
        if drop:
            return self._end(rows)
        if self._share.whole:
            # No step of its own: the others, who may have more, are that many units into it.
            return self._send(writers[index], after=False) if rows else self._end(0)
        return self._finish_short(writers[index:], begun + index)

    def _finish_short(self, writers: Sequence[UnitWriter], begun: int) -> bool:
        """The last step, or an empty one because another consumer has rows."""
        if not (begun or writers[0].rows or self._lockstep.any_has_rows(self._steps)):
            return self._end(0)
        for i, writer in enumerate(writers, 1):
            if self._job.remainder == types_pb2.PAD:
                writer.pad()
            self._mark(writer, begun + i)
        return self._finish_step(writers)

    def _mark(self, writer: UnitWriter, begun: int) -> None:
        """Note the position behind a unit within a step, where nobody could cut the step again."""
        if self._job.order == types_pb2.ANY:
            writer.after = self._position(begun)

    def _finish_step(self, writers: Sequence[UnitWriter]) -> bool:
        self._steps += 1
        for i, writer in enumerate(writers):
            self._send(writer, after=i == len(writers) - 1 and self._position_due())
        return True

    def _position_due(self) -> bool:
        """Whether to tell the position: a recent one does, but where arrival makes the order."""
        now = time.monotonic()
        if self._job.order != types_pb2.ANY and now - self._told_at < _POSITION_SECONDS:
            return False
        self._told_at = now
        return True

    def _batch_runs(self, need: int) -> Iterator[Run]:
        """The rows of one batch, run by run, in the job's order; fewer where they end."""
        share = self._share
        if self._job.order == types_pb2.ANY:
            while need:
                runs = self._reading.take_any((need - 1) % share.unit_rows + 1)  # of one unit
                if not runs:
                    return
                need -= sum(run.rows for run in runs)
                yield from runs
            return
        live = [p for p, reader in self._reading.readers.items() if not reader.ended]
        turns = assignment.batch_turns(live, need, share.quota)
        got: int | None = None
        while True:
            try:
                partition, want = next(turns) if got is None else turns.send(got)
            except StopIteration:
                return
            got = 0
            while got < want:
                runs = self._reading.take(partition, want - got)
                if not runs:
                    break
                got += sum(run.rows for run in runs)
                yield from runs

    # Units.

    def _flush(self) -> None:
        self._sink.flush(self._cancelled)

    def _tell_waiting(self, what: str) -> None:
        """Let a trainer that waits know that this sidecar lives, or it would look for another."""
        if self._sink.trainer_waits():
            waiting = trainer_pb2.FromSidecar(waiting=trainer_pb2.Waiting(what=what))
            self._sink.send(waiting, self._cancelled)

    def _writer(self) -> UnitWriter:
        return UnitWriter(self._sink.ring, self._allocate, self._columns, self._share.unit_rows)

    def _allocate(self, size: int) -> int:
        """A slot; waits while the trainer is behind, not while it waits for what it holds."""
        ring = self._sink.ring
        starved_since: float | None = None
        while True:
            slot = ring.allocate(size, 0.0, self._cancelled)
            if slot is None:
                self._sink.flush(self._cancelled)
                slot = ring.allocate(size, time.monotonic() + 1.0, self._cancelled)
            if slot is not None:
                return slot
            if self._cancelled.is_set():
                raise Cancelled
            if not self._sink.trainer_waits():
                starved_since = None
                continue
            starved_since = starved_since or time.monotonic()
            patience = min(_HELD_SECONDS, self._reading.source.timeout_seconds)
            if time.monotonic() - starved_since > patience:
                raise UnavailableError(
                    f"the trainer holds all {ring.slots} batches that the ring of {ring.size:,} "
                    f"bytes has room for, and waits for another of {size:,}: copy batches that "
                    "are to be kept, or raise spec.sidecar.buffer"
                )

    def _send(self, writer: UnitWriter, after: bool) -> bool:
        """Send a unit that the trainer has not got yet; after it there may be more."""
        if self._skip:
            self._skip -= 1
            writer.abandon()
            return True
        filled = writer.finish()
        unit = trainer_pb2.Unit(
            generation=self.generation,
            index=self._units,
            rows=filled.rows,
            slot=filled.slot,
            offsets=filled.offsets,
            sizes=filled.sizes,
            after=self._position() if after else writer.after,
            empty=not filled.rows,
        )
        writer.sent()
        self._sink.send(trainer_pb2.FromSidecar(unit=unit), self._cancelled)
        self._units += 1
        return True

    def _end(self, dropped: int) -> bool:
        # The trainer that has its last batch needs no sidecar, so there may be none again; the
        # other consumers need what this one knows to come to their end.
        self._flush()
        if not self._lockstep.alone:
            self._tell(_TELL_SECONDS, self._cancelled)
        end = trainer_pb2.EpochEnd(
            generation=self.generation, units=self._units, dropped_rows=dropped
        )
        self._sink.send(trainer_pb2.FromSidecar(end=end), self._cancelled)
        return False

    def _position(self, begun: int = 0) -> trainer_pb2.Position:
        """Where all consumers stand after this step, as far as this one knows.

        Or where this one stands after `begun` units of the next.
        """
        job, share = self._job, self._share
        anchors = dict(self._lockstep.anchors(self._steps))
        prefixes, own_rows = [], []
        for p, (ordinal, before, taken, digest, ended) in self._reading.positions().items():
            anchors[p] = trainer_pb2.Anchor(ordinal=ordinal, rows=before, ended=ended)
            own_rows.append(before + taken)
            if taken and digest is not None and not ended:
                split = self._reading.deal[p][ordinal]
                prefixes.append(
                    trainer_pb2.Prefix(partition=p, split=split, rows=taken, digest=digest)
                )
        return trainer_pb2.Position(
            job=job.name,
            epoch=self.epoch,
            step=self._base_step + self._steps,
            consumers=share.consumers,
            consumer=share.consumer,
            base_step=self._base_step,
            base_rows=self._base_rows if any(self._base_rows) else None,
            anchors=[anchors.get(p, trainer_pb2.Anchor()) for p in range(job.partitions)],
            prefixes=prefixes,
            own_rows=own_rows if job.order == types_pb2.ANY else None,
            partitions=job.partitions,
            global_batch_size=job.global_batch_size,
            seed=job.seed,
            extra_units=begun,
        )
