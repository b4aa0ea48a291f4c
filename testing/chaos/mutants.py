"""Deliberate bugs: each removes one guard of the product, and the ledger must report the effect.

A part's process applies a bug before its real `main` runs (see `zygote`). The bugs of the client
are applied in this process. The product has no hooks for this: the bugs patch its functions.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

MUTANTS: dict[str, Callable[[], None]] = {}


def apply(name: str) -> None:
    """Apply the bug `name` to this process permanently."""
    MUTANTS[name]()


def _mutant(function: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[function.__name__] = function
    return function


# Bugs of the sidecar.


def _resume_later(rows_later: Callable[[int], int]) -> None:
    """Open streams again at other rows than received, but with the row that was requested."""
    from distributed_input.sidecar.streams.split_stream import SplitStream

    real_request, real_receive = SplitStream._request, SplitStream.receive
    shifts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def request(self: Any) -> Any:
        found = real_request(self)
        shifts[self] = rows_later(self.received) if self.received else 0
        if shifts[self]:
            found.start_row += shifts[self]
            found.check_prefix = False
        return found

    def receive(self: Any, call: Any, block: Any) -> None:
        first_row = block.first_row - shifts[self]
        real_receive(self, call, dataclasses.replace(block, first_row=first_row))

    SplitStream._request, SplitStream.receive = request, receive


@_mutant
def resume_at_row_zero() -> None:
    """Start a reopened stream at its first row."""
    _resume_later(lambda received: -received)


@_mutant
def resume_one_late() -> None:
    """Skip one row when a stream is reopened."""
    _resume_later(lambda _: 1)


@_mutant
def resume_one_early() -> None:
    """Repeat the last row when a stream is reopened."""
    _resume_later(lambda _: -1)


@_mutant
def broken_stream_ends_split() -> None:
    """Treat a broken stream as the end of its split, as tf.data service does."""
    from distributed_input.sidecar.streams.split_stream import SplitStream

    def fail(self: Any, call: Any, error: Any, explained: bool) -> None:
        with self._context.lock:
            if call is self._call:
                self._end_attempt(failed=True)
                self.opened, self.total = True, self.received
                self._context.arrived.notify_all()

    SplitStream.fail = fail


@_mutant
def partitions_of_next_consumer() -> None:
    """Read the next consumer's partitions, except on the last consumer."""
    from distributed_input.assignment import splits as assignment

    real = assignment.partitions_of

    def partitions_of(consumer: int, consumers: int, partitions: int) -> list[int]:
        return real(min(consumer + 1, consumers - 1), consumers, partitions)

    assignment.partitions_of = partitions_of


@_mutant
def end_without_others() -> None:
    """End a consumer that has no rows, without regard to the others."""
    from distributed_input.sidecar.steps.step_barrier import StepBarrier

    StepBarrier.any_has_rows = lambda self, steps: False


@_mutant
def drop_without_others() -> None:
    """With `drop`, continue a consumer while it has full batches, without regard to the others."""
    from distributed_input.sidecar.steps.step_barrier import StepBarrier

    StepBarrier.all_have_full_step = lambda self, steps: True


def _positions(steps: int) -> None:
    from distributed_input.sidecar.steps.epoch_steps import EpochSteps

    real = EpochSteps.state

    def position(self: Any, begun: int = 0) -> Any:
        found = real(self, begun)
        found.step = max(found.base_step, found.step + steps)
        return found

    EpochSteps.state = position


@_mutant
def position_one_step_late() -> None:
    """Save the position after a step that the trainer has not taken."""
    _positions(1)


@_mutant
def position_one_step_early() -> None:
    """Save the position before a step that the trainer has taken."""
    _positions(-1)


@_mutant
def slots_released_early() -> None:
    """Release a slot as soon as it is sent."""
    from distributed_input.sidecar.delivery.unit_writer import UnitWriter

    real = UnitWriter.finish

    def finish(self: Any, generation: int, index: int, after: Any) -> Any:
        unit = real(self, generation, index, after)
        self._slots.release(unit.slot)
        return unit

    UnitWriter.finish = finish


@_mutant
def slots_leak() -> None:
    """Ignore some of the slots that the trainer releases."""
    from distributed_input.sidecar.delivery.slot_pool import SlotPool

    real = SlotPool.release
    given = iter(range(1, 1 << 30))

    def release(self: Any, offset: int) -> None:
        if next(given) % 8:
            real(self, offset)

    SlotPool.release = release


@_mutant
def first_messages_in_any_order() -> None:
    """Let the trainer read whose first message is handled last, not the one that connected last."""
    from distributed_input.sidecar.inputs.reader_sessions import ReaderSessions

    real = ReaderSessions.attach

    def attach(self: Any, session: Any) -> None:
        if self._current is not None:
            session.number = self._current.number + 1
        real(self, session)

    ReaderSessions.attach = attach


@_mutant
def closed_partitions_forget() -> None:
    """Report fewer rows of a partition once its reader is closed."""
    from distributed_input.sidecar.streams.partition_reader import PartitionReader

    real = PartitionReader.close

    def close(self: Any) -> None:
        real(self)
        self._seen_at_close = 0

    PartitionReader.close = close


@_mutant
def failing_streams_wake_each_other() -> None:
    """Let each stream that fails end the back-off of all others."""
    from distributed_input.sidecar.streams.worker_pool import WorkerPool

    real = WorkerPool.release

    def release(self: Any, worker_id: str, failed: bool) -> None:
        real(self, worker_id, failed)
        self.wake()

    WorkerPool.release = release


# Bugs of the worker.


@_mutant
def digest_unchecked() -> None:
    """Do not report that a worker produces different rows than before."""
    from distributed_input.worker.streams import split_blocks

    split_blocks._differs = lambda *args, **kwargs: False


def _keys_without(field: str) -> None:
    """Share rows between streams that differ only in `field`."""
    from distributed_input.worker.streams import shared_stream

    real = shared_stream.sharing_key

    def sharing_key(request: Any) -> Any:
        alike = type(request)()
        alike.CopyFrom(request)
        alike.ClearField(field)
        return real(alike)

    shared_stream.sharing_key = sharing_key


@_mutant
def shares_any_epoch() -> None:
    """Share rows between jobs that read different epochs."""
    _keys_without("epoch")


@_mutant
def shares_any_split() -> None:
    """Share rows between jobs that read different splits."""
    _keys_without("split")


@_mutant
def shares_whole_blocks() -> None:
    """Send a whole block to a reader that joins in the middle of it."""
    from distributed_input.worker.streams import shared_producers

    shared_producers.rows_from = lambda block, before, request: block


@_mutant
def shares_unchecked() -> None:
    """Share replayed rows without a check against the rows that this stream had before."""
    from distributed_input.worker.streams import shared_producers

    real = shared_producers.first_block

    def first_block(block: Any, stream: Any) -> Any:
        stream.request.check_prefix = False
        return real(block, stream)

    shared_producers.first_block = first_block
    digest_unchecked()


# A bug of the dispatcher.


@_mutant
def no_fencing() -> None:
    """Let two holders of one consumer index continue."""
    from distributed_input.dispatcher import consumers

    consumers._exclude = lambda one, other: False


# Another bug of the sidecar.


@_mutant
def ignore_fencing() -> None:
    """Continue a sidecar whose consumer index was taken by another one."""
    from distributed_input.sidecar.inputs.reader_sessions import ReaderSessions

    ReaderSessions.refuse = lambda self, error: None


# Bugs of the client. They are in this process, so the caller removes them.


def stale_units(patch: Callable[[Any, str, Any], None]) -> None:
    """Accept units of an earlier generation as units of the current one."""
    from distributed_input.client.batch_queue import BatchQueue

    real = BatchQueue.pop

    def pop(self: Any, generation: int) -> Any:
        for unit in self.units():
            unit.generation = generation
        return real(self, generation)

    patch(BatchQueue, "pop", pop)


def position_of_previous_save(patch: Callable[[Any, str, Any], None]) -> None:
    """Save the position of the previous checkpoint."""
    from distributed_input.client.input import Input

    real = Input.position
    last: dict[Any, bytes] = {}

    def position(self: Any, *args: Any) -> bytes:
        now = real(self, *args)
        before = last.get(self, now)
        last[self] = now
        return before

    patch(Input, "position", position)


def loop_takes_steps_of_the_job(patch: Callable[[Any, str, Any], None]) -> None:
    """Count a step of whole elements as one element of each partition, not of each replica."""
    from distributed_input.client.session import SidecarSession

    patch(SidecarSession, "replicas", property(lambda self: self.units_per_step))


def bursts_of_any_epoch(patch: Callable[[Any, str, Any], None]) -> None:
    """Let an iterator that reads in bursts take the units of the newest epoch."""
    from distributed_input.client.reader import InputReader

    real = InputReader._next_batch

    def bursts(self: Any, generation: int) -> Any:
        generation = self._start(generation)
        while (first := real(self, generation)) is not None:
            burst = [first]
            del first
            while self._queue:
                with self._receive_lock:  # a simulation switches to other threads at locks
                    newest = self.generation
                if (more := real(self, newest)) is None:
                    break
                burst.append(more)
            yield burst
            del burst

    patch(InputReader, "bursts", bursts)
