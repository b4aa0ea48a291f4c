"""Deliberate bugs: each takes one guard away, and the ledger must see what gets through.

A part's process applies one before its real `main` runs (see `zygote`); those of the client are
applied in this process. The product itself has no hooks: these patch its functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

MUTANTS: dict[str, Callable[[], None]] = {}


def apply(name: str) -> None:
    """Put the bug `name` into this process, for good."""
    MUTANTS[name]()


def _mutant(function: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[function.__name__] = function
    return function


# Of the sidecar.


class _Shifted:
    """A worker's stub and its calls: streams begin `rows` later than asked, and do not say so."""

    def __init__(self, stub: Any, rows: int) -> None:
        self._stub, self._rows = stub, rows

    def Stream(self, request: Any) -> Any:  # noqa: N802
        request.start_row += self._rows
        request.check_prefix = False
        self._call = self._stub.Stream(request)
        return self

    def __iter__(self) -> Iterator[bytes]:
        from distributed_input.rows import blocks

        for data in self._call:
            block = blocks.decode(data)
            told = dataclasses.replace(block, first_row=block.first_row - self._rows)
            yield blocks.encode(told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def _resume_later(rows_later: Callable[[int], int]) -> None:
    from distributed_input.sidecar.streams import split_stream

    real = split_stream.SplitStream._read

    def read(self: Any, stub: Any) -> None:
        later = rows_later(self.received)
        chosen: Any = _Shifted(stub, later) if self.received and later else stub
        real(self, chosen)

    split_stream.SplitStream._read = read


@_mutant
def resume_at_row_zero() -> None:
    """A stream that is opened again begins anew."""
    _resume_later(lambda received: -received)


@_mutant
def resume_one_late() -> None:
    """A stream that is opened again leaves a row out."""
    _resume_later(lambda _: 1)


@_mutant
def resume_one_early() -> None:
    """A stream that is opened again brings its last row once more."""
    _resume_later(lambda _: -1)


@_mutant
def broken_stream_is_an_end() -> None:
    """A stream that breaks is taken for the end of its split: what tf.data service does."""
    from distributed_input.sidecar.streams import split_stream

    real = split_stream.SplitStream._read

    def read(self: Any, stub: Any) -> None:
        import grpc

        try:
            real(self, stub)
        except grpc.RpcError:
            with self._context.lock:
                self.opened, self.total = True, self.received
                self._context.arrived.notify_all()

    split_stream.SplitStream._read = read


@_mutant
def partitions_of_the_next() -> None:
    """Every consumer but the last reads its neighbour's partitions."""
    from distributed_input.assignment import splits as assignment

    real = assignment.partitions_of

    def partitions_of(consumer: int, consumers: int, partitions: int) -> list[int]:
        return real(min(consumer + 1, consumers - 1), consumers, partitions)

    assignment.partitions_of = partitions_of


@_mutant
def ends_alone() -> None:
    """A consumer without rows ends, whatever the others have."""
    from distributed_input.sidecar.steps.step_barrier import StepBarrier

    StepBarrier.any_has_rows = lambda self, steps: False


@_mutant
def drops_alone() -> None:
    """With drop, a consumer goes on for as long as it has full batches itself."""
    from distributed_input.sidecar.steps.step_barrier import StepBarrier

    StepBarrier.all_have_full_step = lambda self, steps: True


def _positions(steps: int) -> None:
    from distributed_input.sidecar.steps.epoch_steps import EpochSteps

    real = EpochSteps.position

    def position(self: Any, begun: int = 0) -> Any:
        found = real(self, begun)
        found.step = max(found.base_step, found.step + steps)
        return found

    EpochSteps.position = position


@_mutant
def position_one_step_late() -> None:
    """What is saved is a step that the trainer has not had."""
    _positions(1)


@_mutant
def position_one_step_early() -> None:
    """What is saved is a step that the trainer has had."""
    _positions(-1)


@_mutant
def slots_given_back_at_once() -> None:
    """A slot is free again as soon as it is sent."""
    from distributed_input.sidecar.delivery.unit_writer import UnitWriter

    real = UnitWriter.finish

    def finish(self: Any, generation: int, index: int, after: Any) -> Any:
        unit = real(self, generation, index, after)
        self._slots.release(unit.slot)
        return unit

    UnitWriter.finish = finish


@_mutant
def slots_leak() -> None:
    """What the trainer gives back is not taken."""
    from distributed_input.sidecar.delivery.slot_pool import SlotPool

    real = SlotPool.release
    given = iter(range(1, 1 << 30))

    def release(self: Any, offset: int) -> None:
        if next(given) % 8:
            real(self, offset)

    SlotPool.release = release


# Of the worker.


@_mutant
def digest_unchecked() -> None:
    """A worker that makes other rows than before does not say so."""
    from distributed_input.worker.streams import split_blocks

    real = split_blocks._with_stream_header

    def with_stream_header(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(real(*args, **kwargs), prefix_differs=False)

    split_blocks._with_stream_header = with_stream_header


def _keys_without(field: str) -> None:
    """Streams that differ in `field` alone are taken for readers of the same rows."""
    from distributed_input.worker.streams import shared_producers

    real = shared_producers.sharing_keys

    def sharing_keys(request: Any) -> Any:
        alike = type(request)()
        alike.CopyFrom(request)
        alike.ClearField(field)
        return real(alike)

    shared_producers.sharing_keys = sharing_keys


@_mutant
def shares_any_epoch() -> None:
    """A job gets the rows that another read in another epoch."""
    _keys_without("epoch")


@_mutant
def shares_any_split() -> None:
    """A job gets the rows of whatever split another reads."""
    _keys_without("split")


@_mutant
def shares_whole_blocks() -> None:
    """Who joins within a block gets all of it."""
    from distributed_input.worker.streams import shared_producers

    shared_producers.encoded_from = lambda block, row, request: block.encoded


@_mutant
def shares_unchecked() -> None:
    """Rows made again for another are taken to be those that this stream had before."""
    from distributed_input.worker.streams import shared_producers

    real = shared_producers.joining_header

    def joining_header(cursor: Any) -> bytes:
        cursor.request.check_prefix = False
        return real(cursor)

    shared_producers.joining_header = joining_header
    digest_unchecked()


# Of the dispatcher.


@_mutant
def fences_nobody() -> None:
    """Two hold one consumer index, and neither is told."""
    from distributed_input.dispatcher import consumers

    consumers._exclude = lambda one, other: False


# Of the sidecar, again.


@_mutant
def deaf_to_fences() -> None:
    """A sidecar goes on though its place was taken."""
    from distributed_input.sidecar.inputs.reader_sessions import ReaderSessions

    ReaderSessions.refuse = lambda self, error: None


# Of the client: in this process, so the caller undoes them.


def stale_units(patch: Callable[[Any, str, Any], None]) -> None:
    """Units of a generation that is over are taken for the running one's."""
    from distributed_input.client.reader import Reader

    real = Reader._take

    def take(self: Any, channel: Any, message: Any) -> None:
        kind = message.WhichOneof("message")
        units = {"unit": [message.unit], "units": message.units.units}.get(kind, [])
        for unit in units:
            unit.generation = self._epoch.generation
        real(self, channel, message)

    patch(Reader, "_take", take)


def position_of_the_save_before(patch: Callable[[Any, str, Any], None]) -> None:
    """A checkpoint gets the position of the one before it."""
    from distributed_input.client.input import Input

    real = Input.position
    last: dict[Any, bytes] = {}

    def position(self: Any, *args: Any) -> bytes:
        now = real(self, *args)
        before = last.get(self, now)
        last[self] = now
        return before

    patch(Input, "position", position)
