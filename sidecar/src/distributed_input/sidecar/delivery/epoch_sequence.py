"""The epochs that one connection delivers: one after the other, at most one read ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, types_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.order.jobs import input_of
from distributed_input.order.share import Share
from distributed_input.sidecar.delivery.epoch_run import EpochRequest, EpochRun
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.delivery.shared_outbox import SharedOutbox
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.steps.row_source import RowSource


class EpochSequence:
    """Starts the epochs of one connection.

    Args:
        slots: where the rows go.
        outbox: sends units to the trainer.
        on_begin: called before an epoch begins, with the facts of the epochs before.

    Attributes:
        epoch: index of the epoch that the trainer reads.
    """

    def __init__(
        self,
        slots: SlotPool,
        outbox: UnitOutbox | SharedOutbox,
        on_begin: Callable[[Sequence[dispatcher_pb2.PartitionFact]], None],
    ) -> None:
        self.epoch = 0
        self._slots, self._outbox, self._on_begin = slots, outbox, on_begin
        self._source: RowSource | None = None
        self._share: Share | None = None
        self._run: EpochRun | None = None
        self._ended: EpochRun | None = None  # other consumers may still need its facts
        self._generation = 0  # that the trainer reads
        self._stopped = False
        self._changing = threading.Lock()  # guards changes of `_run`

    def open(self, source: RowSource, share: Share) -> None:
        """Set the job that the following epochs are of."""
        self._source, self._share = source, share

    def close(self) -> None:
        """Stop the epochs of the job that was open, and drop their facts: another one follows."""
        with self._changing:
            self._source = self._share = None
            self.cancel()
            self._run = self._ended = None
            self.epoch = 0

    def stop(self) -> None:
        """Stop the epochs for good, but keep their facts. Then their slots may be released."""
        with self._changing:
            self._stopped = True
            self.cancel()

    def start(self, start: trainer_pb2.StartEpoch) -> None:
        """Deliver the epoch that the trainer starts, unless it has been begun ahead of time.

        Raises:
            ConfigError: no job is open, or the job has fewer epochs.
            Cancelled: `stop` was called.
        """
        position = start.position if start.HasField("position") else None
        with self._changing:
            if self._stopped:
                raise Cancelled
            self._generation, self.epoch = start.generation, start.epoch
            run = self._run
            if run is not None and run.request.generation == start.generation:
                # Begun ahead of time. A trainer that starts another epoch or position increments
                # the generation once more, because units of this one are on their way.
                self._read_ahead(run)
                if run.failed and self._source is not None:
                    self._source.exchange.request_heartbeat()
                return
            if run is not None:
                run.cancel()
            self._begin(EpochRequest(start.epoch, start.generation, position))

    def _on_sent(self, run: EpochRun) -> None:
        """Begin the next epoch. Called by the run's thread, which `start` may be waiting for."""
        while not self._changing.acquire(timeout=0.1):
            if run.cancelled:
                return
        try:
            self._read_ahead(run)
        finally:
            self._changing.release()

    def _read_ahead(self, run: EpochRun) -> None:
        """Begin the epoch behind one that is sent and being read: the likely next request."""
        source, request = self._source, run.request
        if source is None or run is not self._run or run.cancelled or self._outbox.closed:
            return
        if run.done and request.generation == self._generation:
            self._ended = run
            if not source.job.epochs or request.epoch + 1 < source.job.epochs:
                self._begin(EpochRequest(request.epoch + 1, request.generation + 1))

    def _begin(self, request: EpochRequest) -> None:
        source, share = self._source, self._share
        if source is None or share is None:
            raise ConfigError("the trainer started an epoch before it opened the job")
        check_epoch(source.job, request.epoch)
        self._on_begin(self.facts())
        source.facts.forget_before(request.epoch - 1)
        self._run = EpochRun(request, source, share, self._slots, self._outbox, self._on_sent)
        self._run.start()

    def cancel(self) -> None:
        """Stop the epoch that is delivered now, and wait for its thread."""
        run = None
        while run is not self._run:  # the thread may have begun the next epoch meanwhile
            run = self._run
            if run is not None:
                run.cancel()

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts of the epochs that were begun last."""
        runs = (self._ended, self._run)
        return [fact for run in runs if run is not None for fact in run.facts()]

    @property
    def failed(self) -> str:
        """The error that ended the epoch that the trainer reads; empty: none."""
        run = self._read
        return run.failed if run is not None else ""

    @property
    def weights(self) -> types_pb2.Weights | None:
        """The weights of a mixture where the trainer continued; None if it did not."""
        run = self._read
        return run.weights if run is not None else None

    def fail(self, generation: int, error: str) -> None:
        """Record an error of the loop over an epoch, if it has one and still reads the epoch."""
        run = self._read
        if error and run is not None and generation == self._generation:
            run.fail(error)

    @property
    def _read(self) -> EpochRun | None:
        """The epoch that the trainer reads."""
        runs = (self._ended, self._run)
        return next((r for r in runs if r and r.request.generation == self._generation), None)

    @property
    def has_ended(self) -> bool:
        """Whether the trainer has received the whole epoch that it reads."""
        run = self._read
        return run is not None and run.done and self._outbox.acks.has_all_of(self._generation)


def check_epoch(job: types_pb2.Job, epoch: int) -> None:
    """Raise ConfigError if the job has no epoch of this index."""
    if job.epochs and epoch >= job.epochs:
        raise ConfigError(
            f"input {input_of(job.name)} has {job.epochs} epochs (spec.epochs), but the "
            f"trainer starts epoch {epoch + 1}. Raise spec.epochs, or iterate fewer "
            "times"
        )
