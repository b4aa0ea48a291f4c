"""The readers of one consumer: processes that get the same batches, as tensor-parallel groups do.

One pass fetches the rows for all. It begins once all readers have started an epoch.
A reader that comes back at an earlier position begins another pass there: the others get only what
is behind their own places. So each reader gets each row once, whatever dies.

A reader that has started an epoch has either a pass that gets to its place, or a timer: when it
fires, the reader gets an error that names the ranks that it waits for. `_settle` keeps this rule.

This module is long because one lock guards the members, the job and the pass.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace

from distributed_input.api.errors import (
    ConfigError,
    DistributedInputError,
    FencedError,
    PositionError,
    UnavailableError,
)
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.order.jobs import is_same
from distributed_input.order.share import Share, loop_units, share_of
from distributed_input.sidecar.delivery.epoch_sequence import EpochSequence, check_epoch
from distributed_input.sidecar.delivery.outbox import UnitOutbox, failure_message
from distributed_input.sidecar.delivery.shared_outbox import (
    Place,
    Reader,
    ReaderStage,
    SharedOutbox,
)
from distributed_input.sidecar.inputs.closed_ranks import ClosedRanks
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.job_sessions import ConsumerStats, JobSession
from distributed_input.sidecar.steps import resume
from distributed_input.sidecar.steps.mixed_steps import are_of_one_sequence
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams.read_ahead import UsefulWorkers

_REPORT_SECONDS = 2.0  # between reports to a rank that waits while another one opens the job


class GroupReading:
    """What one session reads as a member of a group. It has the methods of a session's reading.

    Args:
        group: the group.
        session: the session of the process.
        socket: its connection.
        rank: its rank among all processes.
    """

    def __init__(
        self, group: ReaderGroup, session: JobSession, socket: TrainerSocket, rank: int
    ) -> None:
        self.input, self.session = group.input, session
        self.outbox = UnitOutbox(socket, group.input.slots, keeps_unsent=True)
        self.reader = Reader(rank, self.outbox)
        self.gone = socket.closed
        self._group = group

    def open(
        self, request: trainer_pb2.Open, dataset: bytes, report: Callable[[str], None]
    ) -> trainer_pb2.Opened:
        """Open the job, or join the others that have opened it."""
        return self._group.open(self, request, dataset, report)

    def start(self, start: trainer_pb2.StartEpoch) -> None:
        """Start an epoch."""
        self._group.start(self, start)

    def fail(self, generation: int, error: str) -> None:
        """Record an error of the process's loop."""
        self._group.fail_loop(self, generation, error)

    def stop(self, *, closed: bool) -> None:
        """Send no more. `closed`: the process has closed the job."""
        self._group.remove(self, closed=closed)
        with contextlib.suppress(Cancelled):
            self.outbox.flush(self.gone)  # sends nothing, releases slots

    def close(self) -> None:
        """Release all slots: the process is gone."""
        self._group.remove(self, closed=False)
        self.outbox.release_all()
        self.outbox.end_times()


class ReaderGroup:
    """The sessions of the processes that read one consumer's rows. It is one session of a job.

    Args:
        job_input: the job.
        readers: number of processes.
        number: number of the first session.

    Attributes:
        input: the job.
        readers: number of processes.
        number: see `JobSession`.
    """

    def __init__(self, job_input: JobInput, readers: int, number: int) -> None:
        self.input, self.readers, self.number = job_input, readers, number
        self.is_over = False  # all members have left
        self._is_closing = False  # the sidecar stops
        self._members: list[GroupReading] = []
        self._closed = ClosedRanks(
            job_input.slots.path.parent, job_input.config.name, job_input.consumer, readers
        )
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        self._request: trainer_pb2.Open | None = None
        self._opened = trainer_pb2.Opened()
        self._open_members: set[GroupReading] = set()
        self._source: RowSource | None = None
        self._share: Share | None = None
        self._loop_units = 1
        self._outbox = SharedOutbox(job_input.slots, job_input.streams.waiting)
        self._epochs = EpochSequence(
            job_input.slots,
            self._outbox,
            lambda facts: job_input.sessions.keep_facts(self, facts),
        )
        self._final = ConsumerStats()  # when the last member left
        self._timer: threading.Timer | None = None
        self._generation = 0  # of the pass
        self._epoch = 0  # of that generation; the pass reads one more ahead

    @property
    def name(self) -> str:
        """What its readers have in common, for messages."""
        return f"data rank {self.input.consumer} of {self.input.consumers}"

    # Members.

    def join(self, session: JobSession, socket: TrainerSocket, rank: int) -> GroupReading | None:
        """Add a process. An older connection of the same rank ends.

        Return None if all members have left meanwhile: then there is another group.

        Raises:
            ConfigError: the group has as many processes of other ranks.
            FencedError: a process of this rank has connected later.
            Cancelled: the sidecar stops.
        """
        with self._lock:
            if self._is_closing:
                raise Cancelled
            if self.is_over:
                return None
            older = [one for one in self._members if one.reader.rank == rank]
            for one in older:
                if one.session.number > session.number:  # a late message of an ended process
                    raise self._fenced(rank)
            # An older process of another rank may be a member until it is removed.
            ranks = sorted({one.reader.rank for one in self._members} - {rank})
            if len(ranks) >= self.readers:
                raise ConfigError(
                    f"rank {rank} is one more reader of {self.name} of input {self.input.name}: "
                    f"its {self.readers} readers are the ranks {_list(ranks)}. Pass each rank its "
                    "own data_rank: the number of ranks divided by data_size have the same one"
                )
            reading = GroupReading(self, session, socket, rank)
            self._members.append(reading)
            self._closed.ranks.discard(rank)
        for one in older:
            self.remove(one, closed=False)
            one.session.end(self._fenced(rank))
        return reading

    def _fenced(self, rank: int) -> FencedError:
        return FencedError(
            f"input {self.input.name} was opened again by rank {rank}: a process has one reader of "
            "a job at a time. Check that no other process has the same rank"
        )

    def remove(self, reading: GroupReading, *, closed: bool) -> None:
        """Remove a process. The last one ends the group."""
        with self._lock:
            if reading not in self._members:
                return
            if closed:
                self._closed.ranks.add(reading.reader.rank)
            facts, self._final = self.facts(), self.stats()
            self._members.remove(reading)
            self._open_members.discard(reading)
            self._outbox.remove(reading.reader)
            self.is_over = is_last = not self._members
            if is_last:
                self._stop_timer()
                if len(self._closed.ranks) >= self.readers:  # otherwise one may return, alone
                    self._closed.clear()
            else:
                self._settle()
        if is_last:
            self._epochs.cancel()
            self.input.sessions.leave(self, facts)
            self.input.sessions.detach(self, facts)

    # The job.

    def open(
        self,
        reading: GroupReading,
        request: trainer_pb2.Open,
        dataset: bytes,
        report: Callable[[str], None],
    ) -> trainer_pb2.Opened:
        """Open the job for the first member, and return the same answer to the others.

        Raises:
            ConfigError: the members open different jobs, or the job has no batch size.
            DistributedInputError: the job is refused.
            Cancelled: the process has left the group meanwhile.
        """
        while not self._opening.acquire(timeout=_REPORT_SECONDS):
            report(f"another rank of {self.name}, which opens the job")
        try:
            if reading not in self._members:
                raise Cancelled  # its process has gone, or the sidecar stops
            if self._open_members - {reading}:
                self._check_same(reading, request)
            else:
                self._open(request, dataset, report)
            with self._lock:
                if reading in self._members:  # no other process of its rank has connected meanwhile
                    self._open_members.add(reading)
            return self._opened
        finally:
            self._opening.release()

    def _check_same(self, reading: GroupReading, request: trainer_pb2.Open) -> None:
        known = self._request
        same = known is not None and is_same(known.draft, request.draft)
        if not same or known is None or _loop_of(known) != _loop_of(request):
            ranks = _list([one.reader.rank for one in self._open_members if one is not reading])
            if reading in self._open_members:
                raise ConfigError(
                    f"rank {reading.reader.rank} opens input {self.input.name} again in another "
                    f"way, while rank {ranks} has it open: the ranks of {self.name} cannot change "
                    "their job. Close the input in all of them, and then connect again"
                )
            raise ConfigError(
                f"rank {reading.reader.rank} reads {self.name} of input {self.input.name} in "
                f"another way than rank {ranks}: use the same dataset, batch size, number of "
                "replicas and lineage in all of them"
            )

    def _open(
        self, request: trainer_pb2.Open, dataset: bytes, report: Callable[[str], None]
    ) -> None:
        with self._lock:
            self._stop_timer()
            self._epochs.close()
            self._outbox.running, self._request = False, None
            for one in self._outbox.readers:
                one.stage = ReaderStage.IDLE  # it has read another job
        job = self.input.open_job(request.draft, dataset, report)
        consumer, consumers = self.input.consumer, self.input.consumers
        share = share_of(job, consumer, consumers, max(1, request.replicas))
        if share.whole:
            raise ConfigError(
                f"input {self.input.name}: {self.readers} ranks read the same batches, so the size "
                "of a batch must be known: set spec.batching.globalBatchSize"
            )
        self._loop_units = loop_units(job, request.replicas)
        source = replace(self.input.row_source(job), lineage=request.lineage)
        with self._lock:
            self._source, self._share, self._request = source, share, request
            self._epochs.open(source, share)
        self._opened = trainer_pb2.Opened(
            job=job,
            unit_rows=share.unit_rows,
            units_per_step=share.units,
            lineage=request.lineage,
        )

    # Epochs.

    def start(self, reading: GroupReading, start: trainer_pb2.StartEpoch) -> None:
        """Let a member read from the start of an epoch or a position.

        Raises:
            ConfigError: no job is open, or it has fewer epochs.
            PositionError: the members cannot continue together at this position.
            Cancelled: the sidecar stops.
        """
        position = start.position if start.HasField("position") else None
        reader = reading.reader
        with self._lock:
            if self._is_closing:
                raise Cancelled
            if self._source is None or self._share is None or reading not in self._open_members:
                raise ConfigError("the trainer started an epoch before it opened the job")
            check_epoch(self._source.job, start.epoch)
            self._closed.reopen(reader.rank)
            place = self._place(start.epoch, position)
            self._check_position(reader, place, position)
            with self._outbox.lock:
                begun = (reader.generation, reader.begin, reader.position)
                if begun == (start.generation, Place(start.epoch, 0), None) and position is None:
                    reader.started = True  # begun ahead of time; an error may be on its way
                else:
                    reader.start(start.generation, place, position)
                if reader not in self._outbox.readers:
                    self._outbox.add(reader)
                must_begin = self._outbox.running and not self._follows(reader)
            if must_begin:
                self._begin()
            self._settle()

    def _place(self, epoch: int, position: trainer_pb2.Position | None) -> Place:
        assert self._share is not None
        if position is None:
            return Place(epoch, 0)
        if not resume.has_same_cut(position, self._share) and position.extra_units:
            raise PositionError(
                "the position is within a step of another number of trainers or replicas, which "
                f"the {self.readers} ranks of {self.name} cannot restore. Save it behind a step"
            )
        units = position.step * self._share.units + position.extra_units
        return Place(epoch, units)

    def _check_position(
        self, reader: Reader, place: Place, position: trainer_pb2.Position | None
    ) -> None:
        """Check a position before a reader starts there, so that the others read on if it cannot.

        Raises:
            PositionError: it is not of this job, or the others cannot continue together with it.
        """
        assert self._source is not None
        assert self._share is not None
        if position is not None:
            resume.check_position(position, self._source.job, self._share)
        own = self._has_other_cut(position)
        for one in self._outbox.readers:
            if one is reader or not one.has_place:
                continue
            # A pass that begins before a position of another number does not get to it.
            other, behind = self._is_cut_anew(one), one.next < place
            is_same = one.next == place
            if place.epoch == one.next.epoch and not self._has_same_weights(one, position):
                raise PositionError(
                    f"rank {reader.rank} and rank {one.rank} read the same batches ({self.name}), "
                    "but the weights of the mixture (spec.mixture) in their positions differ: "
                    "restore all ranks from the same checkpoint"
                )
            own_missed = own and (behind or (is_same and not (other or one.sent)))
            other_missed = other and not behind and not (is_same and own)
            if own_missed or other_missed:
                raise PositionError(
                    f"rank {reader.rank} and rank {one.rank} read the same batches ({self.name}), "
                    "but have restored different positions: restore all ranks from the same "
                    "checkpoint"
                )

    def _has_same_weights(self, reader: Reader, position: trainer_pb2.Position | None) -> bool:
        """Return whether a reader gets the same rows as one that begins at a position."""
        assert self._source is not None
        job, start = self._source.job, trainer_pb2.Position()
        if not job.sources:
            return True
        begun = start if reader.stage is ReaderStage.ENDED else reader.position or start
        return are_of_one_sequence(begun, position or start, job)

    def _follows(self, reader: Reader) -> bool:
        """Return whether the running pass gets to the places of all readers."""
        first, place = self._first(), self._outbox.next
        if first is None or self._is_cut_anew(reader):
            return first is None
        # It need not make units that no reader needs, unless there is no later position.
        return first.next == place or (first.next > place and bool(first.sent))

    def _first(self) -> Reader | None:
        """Return the reader that needs the earliest units."""
        readers = [one for one in self._outbox.readers if one.has_place]
        return min(readers, key=lambda one: (one.next, one.sent), default=None)

    def _is_cut_anew(self, reader: Reader) -> bool:
        """Return whether a reader begins at a position of another number of consumers."""
        return reader.needs_units and not reader.sent and self._has_other_cut(reader.position)

    def _has_other_cut(self, position: trainer_pb2.Position | None) -> bool:
        """Return whether a pass from an earlier place may not get to a position.

        All passes get to the start of an epoch, also if a position of another number is there.
        """
        assert self._share is not None
        if position is None or not (position.step or position.extra_units):
            return False
        return not resume.has_same_cut(position, self._share)

    def _settle(self) -> None:
        """Give each reader that waits a pass that gets to it, or a timer. After each change."""
        if self._is_closing:  # the readers look for the next sidecar
            return
        readers = self._outbox.readers
        # One that got an error starts again, or it needs no more rows: it may have all of them.
        ready = {one.rank for one in readers if one.has_started or one.has_failed}
        ready |= self._closed.ranks
        if self._outbox.running:
            self._advance()
        elif any(one.waits for one in readers) and len(ready) >= self.readers:
            self._begin()
        if not self._outbox.running and self._outbox.has_unsent:
            threading.Thread(target=self._flush, name="flush", daemon=True).start()
        with self._outbox.lock:
            waiting = self._waiting()
            if waiting:
                self.input.streams.waiting["readers"] = self._missing()
        if not waiting:
            self._stop_timer()
        elif self._timer is None:
            timer = threading.Timer(self.input.timeout_seconds, lambda: self._give_up(timer))
            timer.daemon = True
            self._timer = timer
            timer.start()

    def _waiting(self) -> list[Reader]:
        """Return the readers that no pass gets to before other readers start an epoch."""
        runs, last = self._outbox.running, self._epoch + 1
        readers = [one for one in self._outbox.readers if one.waits]
        return [one for one in readers if not runs or one.begin.epoch > last]

    def _missing(self) -> str:
        """Return what the readers of `_waiting` wait for."""
        if self._outbox.running:
            others = self._outbox.readers
            is_late = [not one.has_started or one.begin.epoch <= self._epoch for one in others]
        else:
            others = [one.reader for one in self._members]
            is_late = [not one.has_started for one in others]
        known = sorted(one.rank for one, late in zip(others, is_late, strict=True) if late)
        present = {one.reader.rank for one in self._members} | self._closed.ranks
        absent = self.readers - len(present)
        texts = [f"rank {_list(known)}, to start the epoch"] if known else []
        texts += [f"{absent} more reader(s) to connect"] if absent > 0 else []
        return f"{' and '.join(texts)} ({self.name}, {self.readers} readers)"

    def _stop_timer(self) -> None:
        self.input.streams.waiting.pop("readers", None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, timer: threading.Timer) -> None:
        """Report to the readers that wait which ones are missing."""
        with self._lock:
            if self._timer is not timer:
                return
            self._stop_timer()
            if self._closed.read():  # a rank has closed the input while no sidecar ran
                self._settle()
                return
            with self._outbox.lock:
                waiting = self._waiting()
                missing = self._missing()
                for reader in waiting:
                    reader.stage = ReaderStage.FAILED
            members = [one for one in self._members if one.reader in waiting]
            failures = [
                failure_message(self._missed(one.reader, missing), one.reader.generation)
                for one in members
            ]
        for one, failure in zip(members, failures, strict=True):
            with contextlib.suppress(Cancelled):
                one.outbox.send(failure, one.gone)

    def _missed(self, reader: Reader, missing: str) -> UnavailableError:
        return UnavailableError(
            f"input {self.input.name}: rank {reader.rank} has waited for "
            f"{self.input.timeout_seconds:.0f} s for {missing}. Start all ranks, and check "
            "that each passes its own data_rank, and the same data_size"
        )

    def _begin(self) -> None:
        """Begin a pass at the earliest place that a reader needs."""
        self._epochs.cancel()
        first = self._first()  # the pass before may have sent more until it ended
        if first is None:  # it has failed, and no reader waits
            self._outbox.running = False
            return
        self._generation += 2  # the next one may have been begun ahead of time
        begin, position = first.next, None
        if first.stage is not ReaderStage.ENDED:
            begin, position = first.begin, first.position
        self._epoch = begin.epoch
        self._outbox.begin_pass(self._generation, begin)
        self._epochs.start(
            trainer_pb2.StartEpoch(
                generation=self._generation, epoch=self._epoch, position=position
            )
        )

    def _flush(self) -> None:
        """Send what a pass has kept back that was cancelled while it sent an end or an error."""
        for one in self._copy():
            with contextlib.suppress(Cancelled):
                one.outbox.flush(one.gone)

    def _advance(self) -> None:
        """Let the pass read one more epoch ahead, once all readers have started the one before."""
        readers = self._outbox.readers
        if not readers or not all(one.has_started for one in readers):
            return
        # More than one if a reader that was behind is gone.
        while min(one.begin.epoch for one in readers) > self._epoch:
            self._generation, self._epoch = self._generation + 1, self._epoch + 1
            self._epochs.start(
                trainer_pb2.StartEpoch(generation=self._generation, epoch=self._epoch)
            )
            with self._outbox.lock:  # the pass may have skipped the rest of an epoch
                self._outbox.next = max(self._outbox.next, Place(self._epoch, 0))

    def fail_loop(self, reading: GroupReading, generation: int, error: str) -> None:
        """Record an error of a member's loop, for the other consumers."""
        if error and generation == reading.reader.generation:
            self._epochs.fail(self._generation, error)

    # The session of a job.

    @property
    def useful(self) -> UsefulWorkers:
        """How many workers the readers can use now."""
        return self._source.useful if self._source is not None else UsefulWorkers()

    def stats(self) -> ConsumerStats:
        """Return what all readers have received."""
        outboxes = [one.outbox for one in self._members.copy()]  # the caller holds a lock
        if not outboxes:
            return self._final
        rows, units, size = self._outbox.consumed
        times = [one.times() for one in outboxes]
        slowest = max(times, key=lambda one: one.wall_seconds)
        return ConsumerStats(
            epoch=self._epochs.epoch,
            rows=rows,
            batches=units // self._loop_units,
            bytes=size,
            wait_seconds=slowest.wait_seconds,
            wall_seconds=slowest.wall_seconds,
            finished=len(self._closed.ranks) > 0 and self._epochs.has_ended,
            received=times[0].received,
            pauses=any(one.trainer_pauses for one in outboxes),
            failed=self._epochs.failed,
            weights=self._epochs.weights,
        )

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts about the partitions that the readers read."""
        return self._epochs.facts()

    def fail(self, error: DistributedInputError) -> None:
        """Report an error that the iterators raise."""
        for one in self._copy():
            one.session.fail(error)

    def end(self, error: DistributedInputError) -> None:
        """Report an error and stop serving all readers."""
        for one in self._copy():
            one.session.end(error)

    def close(self) -> None:
        """Close the connections of all readers. No other one can join."""
        with self._lock:
            self._is_closing = True
        # Before any slots are released: the processes live, and may hold batches in them.
        self._epochs.stop()
        for one in self._copy():
            one.session.close()

    def _copy(self) -> list[GroupReading]:
        with self._lock:
            return list(self._members)


def _list(ranks: list[int]) -> str:
    return ", ".join(str(rank) for rank in ranks)


def _loop_of(request: trainer_pb2.Open) -> tuple[int, bool]:
    """Return what the loops of all members have in common, besides the job."""
    return max(1, request.replicas), request.lineage
