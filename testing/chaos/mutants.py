"""Deliberate bugs: each removes one guard of the product, and the ledger must report the effect.

A part's process applies a bug before its real `main` runs (see `zygote`). The bugs of the client
are applied in this process. The product has no hooks for this: a bug replaces its functions.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

Bug = Callable[..., Any]
"""Called in place of a function of the product, which is its additional first argument."""
MUTANTS: dict[str, Mapping[str, Bug]] = {}
"""For each bug the functions that it replaces: MODULE:NAME in the package `distributed_input`."""


def apply(name: str, patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Apply the bug `name` to this process, permanently unless `patch` removes it again."""
    for target, bug in MUTANTS[name].items():
        module, _, path = target.partition(":")
        *owners, attribute = path.split(".")
        start: Any = importlib.import_module(f"distributed_input.{module}")
        owner = functools.reduce(getattr, owners, start)
        patch(owner, attribute, _replaced(getattr(owner, attribute), bug))


def _replaced(real: Any, bug: Bug) -> Any:
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return bug(real, *args, **kwargs)

    return property(replacement) if isinstance(real, property) else replacement


def _mutant(target: str) -> Callable[[Bug], Bug]:
    def register(bug: Bug) -> Bug:
        MUTANTS[bug.__name__] = {target: bug}
        return bug

    return register


# Bugs of the sidecar.

_STREAM = "sidecar.streams.split_stream:SplitStream"


def _resume_later(rows_later: Callable[[int], int]) -> Mapping[str, Bug]:
    """Open streams again at other rows than received, but with the row that was requested."""
    shifts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def request(real: Any, self: Any) -> Any:
        found = real(self)
        shifts[self] = rows_later(self.received) if self.received else 0
        if shifts[self]:
            found.start_row += shifts[self]
            found.check_prefix = False
        return found

    def receive(real: Any, self: Any, call: Any, block: Any) -> None:
        real(self, call, dataclasses.replace(block, first_row=block.first_row - shifts[self]))

    return {f"{_STREAM}._request": request, f"{_STREAM}.receive": receive}


MUTANTS["resume_at_row_zero"] = _resume_later(lambda received: -received)
MUTANTS["resume_one_late"] = _resume_later(lambda _: 1)
MUTANTS["resume_one_early"] = _resume_later(lambda _: -1)


@_mutant(f"{_STREAM}.fail")
def broken_stream_ends_split(_: Any, self: Any, call: Any, error: Any, explained: bool) -> None:
    """Treat a broken stream as the end of its split, as tf.data service does."""
    with self._context.lock:
        if call is self._call:
            self._end_attempt(failed=True)
            self.opened, self.total = True, self.received
            self._context.arrived.notify_all()


@_mutant("order.splits:partitions_of")
def partitions_of_next_consumer(
    real: Any, consumer: int, consumers: int, partitions: int
) -> list[int]:
    """Read the next consumer's partitions, except on the last consumer."""
    found: list[int] = real(min(consumer + 1, consumers - 1), consumers, partitions)
    return found


@_mutant("sidecar.steps.step_barrier:StepBarrier.any_has_rows")
def end_without_others(_: Any, self: Any, steps: Any) -> bool:
    """End a consumer that has no rows, without regard to the others."""
    return False


@_mutant("sidecar.steps.step_barrier:StepBarrier.all_have_full_step")
def drop_without_others(_: Any, self: Any, steps: Any) -> bool:
    """With `drop`, continue a consumer while it has full batches, without regard to the others."""
    return True


def _positions(steps: int) -> Mapping[str, Bug]:
    """Save the position after or before a step that the trainer takes later or has taken."""

    def position(real: Any, self: Any, begun: int = 0) -> Any:
        found = real(self, begun)
        found.step = max(found.base_step, found.step + steps)
        return found

    return {"sidecar.steps.epoch_steps:EpochSteps.state": position}


MUTANTS["position_one_step_late"] = _positions(1)
MUTANTS["position_one_step_early"] = _positions(-1)


@_mutant("sidecar.delivery.unit_writer:UnitWriter.finish")
def slots_released_early(real: Any, self: Any, generation: int, index: int, after: Any) -> Any:
    """Release a slot as soon as it is sent."""
    unit = real(self, generation, index, after)
    self._slots.release(unit.slot)
    return unit


_released = itertools.count(1)


@_mutant("sidecar.delivery.slot_pool:SlotPool.release")
def slots_leak(real: Any, self: Any, offset: int) -> None:
    """Ignore some of the slots that the trainer releases."""
    if next(_released) % 8:
        real(self, offset)


@_mutant("sidecar.inputs.job_sessions:JobSessions.attach")
def first_messages_in_any_order(real: Any, self: Any, session: Any) -> None:
    """Let the trainer read whose first message is handled last, not the one that connected last."""
    if self._current is not None:
        session.number = self._current.number + 1
    real(self, session)


@_mutant("sidecar.inputs.reader_group:ReaderGroup._follows")
def returning_readers_join_the_pass(_: Any, self: Any, reader: Any) -> bool:
    """Let a reader that returns at an earlier place wait for units that its group has passed."""
    return True


@_mutant("sidecar.inputs.closed_ranks:ClosedRanks.read")
def closed_readers_are_forgotten(_: Any, self: Any) -> bool:
    """Let a sidecar wait for readers that have closed the job in an earlier one."""
    return False


@_mutant("sidecar.delivery.shared_outbox:SharedOutbox._begin_unit")
def units_go_to_all_readers(real: Any, self: Any, place: Any) -> Any:
    """Send the units of a pass also to readers that have got them before."""
    real(self, place)
    return [one for one in self._readers if one.needs_units]


@_mutant("sidecar.delivery.slot_pool:SlotPool.share")
def first_reader_frees_the_slot(_: Any, self: Any, offset: int, readers: int) -> None:
    """Let a slot be free once the first of its readers has released it."""


@_mutant("sidecar.streams.partition_reader:PartitionReader.close")
def closed_partitions_forget(real: Any, self: Any, at: Any = None) -> None:
    """Report fewer rows of a partition once its reader is closed."""
    real(self, at)
    self._seen_before = 0


@_mutant("sidecar.streams.worker_pool:WorkerPool.release")
def failing_streams_wake_each_other(real: Any, self: Any, worker_id: str, failed: bool) -> None:
    """Let each stream that fails end the back-off of all others."""
    real(self, worker_id, failed)
    self.wake()


@_mutant("sidecar.inputs.job_sessions:JobSessions.refuse")
def ignore_fencing(_: Any, self: Any, error: Any) -> None:
    """Continue a sidecar whose consumer index was taken by another one."""


# Bugs of the worker.


@_mutant("worker.streams.split_blocks:_differs")
def digest_unchecked(*_: Any, **__: Any) -> bool:
    """Do not report that a worker produces different rows than before."""
    return False


def _keys_without(field: str) -> Mapping[str, Bug]:
    """Share rows between streams that differ only in `field`."""

    def sharing_key(real: Any, request: Any) -> Any:
        alike = type(request)()
        alike.CopyFrom(request)
        alike.ClearField(field)
        return real(alike)

    return {"worker.streams.shared_stream:sharing_key": sharing_key}


MUTANTS["shares_any_epoch"] = _keys_without("epoch")
MUTANTS["shares_any_split"] = _keys_without("split")


@_mutant("worker.streams.shared_producers:rows_from")
def shares_whole_blocks(_: Any, block: Any, before: Any, request: Any) -> Any:
    """Send a whole block to a reader that joins in the middle of it."""
    return block


@_mutant("worker.streams.shared_producers:first_block")
def shares_unchecked(real: Any, block: Any, stream: Any) -> Any:
    """Share replayed rows without a check against the rows that this stream had before."""
    stream.request.check_prefix = False
    return real(block, stream)


MUTANTS["shares_unchecked"] = {**MUTANTS["shares_unchecked"], **MUTANTS["digest_unchecked"]}


@_mutant("rows.stored_split:_check")
def store_unchecked(*_: Any) -> None:
    """Read stored blocks without a check of their bytes."""


def _names_without(field: str) -> Mapping[str, Bug]:
    """Read stored splits that differ in `field`."""

    def names_of(real: Any, request: Any) -> Any:
        alike = type(request)()
        alike.CopyFrom(request)
        alike.ClearField(field)
        return real(alike)

    return {"worker.store.block_store:names_of": names_of}


MUTANTS["store_any_epoch"] = _names_without("epoch")
MUTANTS["store_any_split"] = _names_without("split")


# A bug of the dispatcher.


@_mutant("dispatcher.consumers:_exclude")
def no_fencing(_: Any, one: Any, other: Any) -> bool:
    """Let two holders of one consumer index continue."""
    return False


# Bugs of the client.


@_mutant("trainer.batch_queue:BatchQueue.pop")
def stale_units(real: Any, self: Any, generation: int) -> Any:
    """Accept units of an earlier generation as units of the current one."""
    for _, item in self._items:
        item.generation = generation
    return real(self, generation)


_saved: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()


@_mutant("trainer.input:Input.position")
def position_of_previous_save(real: Any, self: Any, *args: Any) -> bytes:
    """Save the position of the previous checkpoint."""
    now = real(self, *args)
    before = _saved.get(self, now)
    _saved[self] = now
    return before


@_mutant("trainer.session:SidecarSession.replicas")
def loop_takes_steps_of_the_job(_: Any, self: Any) -> Any:
    """Count a step of whole elements as one element of each partition, not of each replica."""
    return self.units_per_step


@_mutant("trainer.consumer:Consumer.bursts")
def bursts_of_any_epoch(_: Any, self: Any, generation: int) -> Any:
    """Let an iterator that reads in bursts take the units of the newest epoch."""
    generation = self._start(generation)
    while (first := self._next_batch(generation)) is not None:
        burst = [first]
        del first
        while self._queue:
            with self._receive_lock:  # a simulation switches to other threads at locks
                newest = self.generation
            if (more := self._next_batch(newest)) is None:
                break
            burst.append(more)
        yield burst
        del burst
