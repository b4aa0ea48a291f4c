"""One pass of a trainer over its share of an epoch.

A thread copies the rows of each step into units and sends them to the trainer, in the order that
`order` defines. The number of slots and the socket limit how far it runs ahead of the trainer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from distributed_input.api.errors import DatasetFnError, DistributedInputError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, types_pb2
from distributed_input.api.protocol import FAILURE_CHARACTERS
from distributed_input.link.errors import Cancelled, internal_error
from distributed_input.order import mixture
from distributed_input.order.share import Share
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.sidecar.delivery.outbox import UnitOutbox, failure_message
from distributed_input.sidecar.delivery.shared_outbox import SharedOutbox
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.delivery.unit_writer import UnitWriter
from distributed_input.sidecar.steps import resume
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.epoch_steps import EpochSteps
from distributed_input.sidecar.steps.partition_facts import LeftEpochError, OtherConsumerError
from distributed_input.sidecar.steps.row_source import RowSource

_log = logs.get("sidecar.epoch")
_REPORTED = (DatasetFnError, LeftEpochError)  # another attempt would not succeed
_PUBLISH_SECONDS = 2.0  # longest wait for a dispatcher that is away
_POSITION_SECONDS = 0.02  # between positions sent; an older one only makes a replay longer
_POSITION_SHARE = 50  # times that a position takes, between positions: those of mixtures are large


@dataclass(frozen=True)
class EpochRequest:
    """The epoch that a trainer starts.

    Attributes:
        epoch: index of the epoch.
        generation: number of the trainer's iterator, which all units carry.
        position: where to resume, or None for the start of the epoch.
    """

    epoch: int
    generation: int
    position: trainer_pb2.Position | None = None


class EpochRun:
    """Delivers one epoch, or the rest of it after a position, as one generation of units.

    Args:
        request: the epoch to deliver.
        source: where the rows come from.
        share: the consumer's share of the job.
        slots: where the rows go.
        outbox: sends units to the trainer.
        on_sent: called by the run's thread once all units are sent.

    Attributes:
        request: the epoch to deliver.
        done: whether all rows were read.
        failed: the error that ended it, of the dataset or of the trainer's loop; empty: none.
    """

    def __init__(
        self,
        request: EpochRequest,
        source: RowSource,
        share: Share,
        slots: SlotPool,
        outbox: UnitOutbox | SharedOutbox,
        on_sent: Callable[[EpochRun], None],
    ) -> None:
        self.request = request
        self.done = False
        self.failed = ""
        self._job, self._share = source.job, share
        self._exchange = source.exchange
        self._lineage = source.lineage
        self._slots, self._outbox, self._on_sent = slots, outbox, on_sent
        self._reader = EpochReader(source, share, request.epoch, outbox)
        self._cancelled = self._reader.cancelled
        self._timeout_seconds = source.timeout_seconds
        self._drop = self._job.remainder == types_pb2.DROP and not share.whole
        self._units = 0  # sent
        self._skip = 0  # units of the first step that are read again and that the trainer has got
        self._position_due = float("-inf")  # when a position is sent again
        self._is_cut_anew = False  # no position of this number of trainers was sent yet
        self._difference_sent = False
        self._last_block: RowBlock | None = None  # rows that fill up a unit have its shape
        name = f"epoch-{request.epoch}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read and send."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop, release units not yet sent, and wait until the thread has ended."""
        self._reader.cancel()
        self._slots.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def fail(self, error: str) -> None:
        """Report an error to the other consumers, which would wait for this one."""
        self.failed = error[:FAILURE_CHARACTERS]
        self._exchange.request_heartbeat()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts about the partitions read, for the other consumers."""
        return self._reader.facts()

    @property
    def weights(self) -> types_pb2.Weights | None:
        """The weights of a mixture in force at the position where the epoch resumes, if any."""
        position = self.request.position
        if position is None or not self._job.sources:
            return None
        log = mixture.log_of(position, self._job)
        return mixture.log_from(mixture.next_step(position), log)[0]

    # The thread.

    def _run(self) -> None:
        try:
            steps = self._open()
            while self._deliver_step(steps):
                self._reader.read_ahead()
            steps.close()
            self.done = True
            self._on_sent(self)
        except Cancelled:
            pass
        except DistributedInputError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  a bug must be reported to the user
            _log.exception("epoch failed", epoch=self.request.epoch)
            self._fail(internal_error(error))
        finally:
            self._reader.close()

    def _fail(self, error: DistributedInputError) -> None:
        if isinstance(error, _REPORTED) and not isinstance(error, OtherConsumerError):
            self.fail(str(error))
        try:
            self._outbox.send(failure_message(error, self.request.generation), self._cancelled)
        except Cancelled:
            pass

    def _open(self) -> EpochSteps:
        self._exchange.check_run()
        position = self.request.position
        self._is_cut_anew = position is not None and not resume.has_same_cut(position, self._share)
        if position is not None and not self._is_cut_anew:
            self._skip = position.extra_units
        return EpochSteps.open(self._reader, self._share, position)

    # Steps.

    def _deliver_step(self, steps: EpochSteps) -> bool:
        """Send one batch as units. Return False at the end of the epoch."""
        columns = self._reader.plan.columns
        writers = [
            UnitWriter(self._slots, self._allocate, columns, self._share.unit_rows, self._lineage)
            for _ in range(self._share.units)
        ]
        try:
            return self._deliver(steps, writers)
        finally:
            for writer in writers:
                writer.abandon()  # of a step that was dropped, cancelled or not needed

    def _allocate(self, size: int) -> int:
        return self._outbox.allocate(size, self._cancelled, self._timeout_seconds)

    def _deliver(self, steps: EpochSteps, writers: list[UnitWriter]) -> bool:
        batch, is_cut_anew = self._share.batch, self._is_cut_anew
        index = self._fill(steps, writers)
        rows = sum(writer.rows for writer in writers)
        if ended := steps.ended_sources():
            self._is_cut_anew = is_cut_anew  # the unit with the position is not sent
            return self._leave_out(steps, ended) or self._end(steps, rows)
        # With drop, the others are asked only once our own rows are here and reported. Otherwise
        # all consumers would wait for each other.
        if rows == batch and not (self._drop and not steps.barrier.all_have_full_step(steps.done)):
            return self._finish_step(steps, writers[0 if self._drop else index :])
        if not steps.barrier.is_alone:
            self._exchange.request_heartbeat()
        if self._drop:
            return self._end(steps, rows)
        if self._share.whole:
            # This is no step of its own: the others, who may have more, are as many units into it.
            if not rows:
                return self._end(steps, 0)
            self._send(writers[index], writers[index].after)
            return True
        return self._finish_short(steps, writers[index:], index)

    def _fill(self, steps: EpochSteps, writers: list[UnitWriter]) -> int:
        """Add the rows of the next step. Return the index of the last writer that has any."""
        index = 0
        for block in steps.next(self._share.batch):
            if not writers[index].room:
                if not self._drop:
                    self._send(writers[index], writers[index].after)
                index += 1
            self._add(writers[index], block)
            if not writers[index].room:
                self._mark(steps, writers[index], index + 1)
        return index

    def _leave_out(self, steps: EpochSteps, sources: Collection[int]) -> bool:
        """Go on without sources of a mixture that have ended. Return False if none is left."""
        self._exchange.request_heartbeat()  # the others wait for the facts of this step
        self._position_due = float("-inf")  # the trainer does not know the weights behind it
        return steps.leave_out(sources)

    def _add(self, writer: UnitWriter, block: RowBlock) -> None:
        writer.add(block)
        if self._job.remainder == types_pb2.PAD:
            self._last_block = block

    def _finish_short(self, steps: EpochSteps, writers: Sequence[UnitWriter], begun: int) -> bool:
        """Send the last step, or an empty one because another consumer has rows."""
        if not (begun or writers[0].rows or steps.barrier.any_has_rows(steps.done)):
            return self._end(steps, 0)
        for i, writer in enumerate(writers, 1):
            if self._job.remainder == types_pb2.PAD:
                writer.pad(ElementSpec.from_json(self._job.row_spec), self._last_block)
            self._mark(steps, writer, begun + i)
        return self._finish_step(steps, writers)

    def _finish_step(self, steps: EpochSteps, writers: Sequence[UnitWriter]) -> bool:
        self._report_difference()
        steps.done += 1
        for writer in writers[:-1]:
            self._send(writer, writer.after)
        self._send(writers[-1], self._position(steps))
        return True

    def _mark(self, steps: EpochSteps, writer: UnitWriter, begun: int) -> None:
        """Store the position behind a unit, if the trainer cannot count on from an earlier one.

        Args:
            steps: steps of the epoch.
            writer: writer of the unit.
            begun: units of the step up to this one.
        """
        if self._is_cut_anew:
            writer.after = steps.state(begun)
            self._is_cut_anew = False

    def _position(self, steps: EpochSteps) -> trainer_pb2.Position | None:
        """Return the position to send with a step; None if a recent one was sent."""
        began = time.monotonic()
        if began < self._position_due:
            return None
        position = steps.state()
        seconds = time.monotonic() - began
        self._position_due = began + max(_POSITION_SECONDS, _POSITION_SHARE * seconds)
        return position

    # Messages.

    def _send(self, writer: UnitWriter, after: trainer_pb2.Position | None) -> None:
        """Send a unit, unless the trainer has got it before."""
        if self._skip:
            self._skip -= 1
            writer.abandon()
            return
        unit = writer.finish(self.request.generation, self._units, after)
        self._outbox.send_unit(unit, self._cancelled)
        self._units += 1

    def _report_difference(self) -> None:
        """Send the epoch's first replay that made other rows, if it was not sent yet."""
        if self._difference_sent or not self._reader.difference:
            return
        self._difference_sent = True
        difference = trainer_pb2.ReplayDifference(
            generation=self.request.generation, message=self._reader.difference
        )
        self._outbox.send(trainer_pb2.FromSidecar(difference=difference), self._cancelled)

    def _end(self, steps: EpochSteps, dropped: int) -> bool:
        self._report_difference()
        # A trainer that has its last batch needs no sidecar, which may then stop. The other
        # consumers need our facts to come to their end.
        self._outbox.flush(self._cancelled)
        if not steps.barrier.is_alone:
            self._exchange.publish_facts(_PUBLISH_SECONDS, self._cancelled)
        end = trainer_pb2.EpochEnd(
            generation=self.request.generation, units=self._units, dropped_rows=dropped
        )
        self._outbox.send(trainer_pb2.FromSidecar(end=end), self._cancelled)
        return False
