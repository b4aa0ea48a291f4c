"""The units on their way to several trainers that read the same batches, each once.

All of them view the same slots. A slot is free once the last of them has released it. So the
slowest one limits how far the others are ahead of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from distributed_input.api.errors import DistributedInputError
from distributed_input.api.proto import trainer_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.sidecar.delivery.outbox import HELD_SECONDS, UnitOutbox, wait_for_slot
from distributed_input.sidecar.delivery.slot_pool import SlotPool

_T = TypeVar("_T")


class Place(NamedTuple):
    """A place between two units of a job. It counts a consumer's units of the epoch, from 0."""

    epoch: int
    unit: int


class ReaderStage(Enum):
    """What a reader has been sent of its generation, or soon will be."""

    IDLE = auto()  # it has no generation
    RUNNING = auto()  # units; it needs more of them
    ENDED = auto()  # the end
    FAILED = auto()  # an error


@dataclass(eq=False)
class Reader:
    """One of the trainers.

    Attributes:
        rank: its rank among all processes.
        outbox: sends units to it, and has the slots that it holds.
        generation: of the epoch that is sent to it.
        begin: where it reads from in this generation.
        position: the same as a position; None: the start of the epoch.
        sent: units sent in this generation.
        stage: what it has been sent of the generation. Only `SharedOutbox.lock` guards it.
        started: it has started this generation, which otherwise was only begun ahead of time.
        counted: rows, units and bytes that count for it, besides its own.
    """

    rank: int
    outbox: UnitOutbox
    generation: int = 0
    begin: Place = Place(0, 0)  # noqa: RUF009 - it is immutable
    position: trainer_pb2.Position | None = None
    sent: int = 0
    stage: ReaderStage = ReaderStage.IDLE
    started: bool = False
    counted: tuple[int, int, int] = (0, 0, 0)

    @property
    def next(self) -> Place:
        """The place of the next unit that it needs."""
        if self.stage is ReaderStage.ENDED:
            return Place(self.begin.epoch + 1, 0)
        return Place(self.begin.epoch, self.begin.unit + self.sent)

    def start(
        self, generation: int, begin: Place, position: trainer_pb2.Position | None = None
    ) -> None:
        """Begin to read a generation at a place."""
        self.generation, self.begin, self.position = generation, begin, position
        self.sent, self.started, self.stage = 0, True, ReaderStage.RUNNING

    @property
    def needs_units(self) -> bool:
        """Whether units at its place are sent to it."""
        return self.stage is ReaderStage.RUNNING

    @property
    def has_place(self) -> bool:
        """Whether it needs the units at its place now, or probably will."""
        return self.stage in (ReaderStage.RUNNING, ReaderStage.ENDED)

    @property
    def waits(self) -> bool:
        """Whether it has started an epoch, and has got neither the end nor an error."""
        return self.started and self.stage is ReaderStage.RUNNING

    @property
    def has_started(self) -> bool:
        """Whether it has started the epoch of its place, and the epoch has not failed."""
        return self.started and self.has_place

    @property
    def has_failed(self) -> bool:
        """Whether it has got an error in place of the rest of its epoch."""
        return self.stage is ReaderStage.FAILED

    @property
    def consumed(self) -> tuple[int, int, int]:
        """Rows, units and bytes that it has received, or that count as if it had."""
        acks = self.outbox.acks
        own = acks.rows, acks.units, acks.bytes
        return tuple(a + b for a, b in zip(self.counted, own, strict=True))  # type: ignore[return-value]


class SharedOutbox:
    """Sends the messages of one pass to several readers, in place of a `UnitOutbox`.

    Units have two numbers: in the pass, and in the generation of each reader. A reader gets the
    units behind its own place, and no others.

    Args:
        slots: slots that the readers share.
        waiting: what the input waits for now; see `StreamStats`.

    Attributes:
        acks: this object, which has the acknowledgements of all readers.
        lock: guards the readers and their fields.
        next: the place behind the units that were sent.
        running: a pass sends units. If it fails, all readers that need units get the error.
    """

    def __init__(self, slots: SlotPool, waiting: dict[str, str]) -> None:
        self.acks = self
        self.lock = threading.RLock()
        self.next = Place(0, 0)
        self.running = False
        self._readers: list[Reader] = []
        self._left: list[Reader] = []  # those that may still hold slots
        self._slots, self._waiting = slots, waiting
        self._consumed = (0, 0, 0)  # when the last of them was removed
        self._passes: dict[int, Place] = {}  # where each generation of the pass begins

    # Readers.

    @property
    def readers(self) -> list[Reader]:
        """The readers that are connected, by rank."""
        with self.lock:
            return sorted(self._readers, key=lambda one: one.rank)

    def add(self, reader: Reader) -> None:
        """Add a reader. What the others have consumed counts for it as well."""
        with self.lock:
            reader.counted = self.consumed
            self._readers.append(reader)

    def remove(self, reader: Reader) -> None:
        """Send a reader no more units. It may still hold slots."""
        with self.lock:
            if reader in self._readers:
                self._consumed = self.consumed
                self._readers.remove(reader)
                self._left = [one for one in self._left if one.outbox.holds_slots] + [reader]

    @property
    def consumed(self) -> tuple[int, int, int]:
        """Rows, units and bytes that all readers have acknowledged."""
        with self.lock:
            return min((one.consumed for one in self._readers), default=self._consumed)

    def has_all_of(self, _generation: int) -> bool:
        """Return whether all readers have acknowledged all that was sent to them."""
        return all(one.outbox.acks.has_all_of(one.generation) for one in self.readers)

    @property
    def closed(self) -> bool:
        """Whether no reader is left."""
        return not self._readers

    @property
    def trainer_waits(self) -> bool:
        """Whether a reader has reported that it waits."""
        return any(one.outbox.trainer_waits for one in self.readers)

    # The pass.

    def begin_pass(self, generation: int, place: Place) -> None:
        """Set where the next pass begins, and its generation."""
        with self.lock:
            self._passes, self.next, self.running = {generation: place}, place, True

    def send(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        """Send a message about the pass to the readers that it concerns, behind their units.

        What a reader is sent counts before it is sent: a reader that has got the end may start the
        next epoch while the end is on its way to the others.
        """
        kind = str(message.WhichOneof("message"))
        with self.lock:
            place = self._place(getattr(message, kind).generation)
            found = [one for one in self._readers if one.needs_units]
            if kind == "end":
                place = Place(place.epoch, place.unit + message.end.units)
                found = self._begin_unit(place)
                self.next = Place(place.epoch + 1, 0)
            elif kind == "failure":
                self.running = False
            else:
                found = [one for one in found if one.begin.epoch == place.epoch]
            messages = [(one, _addressed(message, one)) for one in found]
            sent = {"end": ReaderStage.ENDED, "failure": ReaderStage.FAILED}
            for one in found:
                one.stage = sent.get(kind, one.stage)
        self._each(messages, lambda one, own: one.outbox.send(own, cancelled), cancelled)
        self.flush(cancelled)  # the others may miss what a cancelled pass has kept back

    def send_unit(self, unit: trainer_pb2.Unit, cancelled: threading.Event) -> None:
        """Send a unit to the readers that need it; see `UnitOutbox`."""
        with self.lock:
            begin = self._place(unit.generation)
            place = Place(begin.epoch, begin.unit + unit.index)
            found = self._begin_unit(place)
            units = []
            for one in found:
                own = trainer_pb2.Unit()
                own.CopyFrom(unit)
                own.generation, own.index = one.generation, one.sent
                units.append((one, own))
                one.sent += 1
            self.next = Place(place.epoch, place.unit + 1)
            if len(found) > 1:
                self._slots.share(unit.slot, len(found))
        if not found:
            self._slots.release(unit.slot)
        self._each(units, lambda one, own: one.outbox.send_unit(own, cancelled), cancelled)

    def _begin_unit(self, place: Place) -> list[Reader]:
        """Return the readers that need the unit at a place, or the end of the epoch there.

        The next epoch of a reader that has got the end begins ahead of time.
        """
        for one in self._readers:
            if one.started and one.stage is ReaderStage.ENDED and one.next == place:
                one.start(one.generation + 1, place)
                one.started = False
        return [one for one in self._readers if one.needs_units and one.next == place]

    def _place(self, generation: int) -> Place:
        """Return where a generation of the pass begins. The next one begins the next epoch."""
        if generation not in self._passes:
            before = self._place(generation - 1)
            self._passes[generation] = Place(before.epoch + 1, 0)
        return self._passes[generation]

    @property
    def has_unsent(self) -> bool:
        """Whether units are kept back."""
        return any(one.outbox.has_unsent for one in self.readers)

    def flush(self, cancelled: threading.Event) -> None:
        """Send the units that are kept back."""
        readers = [(one, None) for one in self.readers]
        self._each(readers, lambda one, _: one.outbox.flush(cancelled), cancelled)

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        """Send the readers that wait what they wait for."""
        readers = [(one, what) for one in self.readers]
        self._each(readers, lambda one, text: one.outbox.report_wait(text, cancelled), cancelled)

    def _each(
        self,
        items: Iterable[tuple[Reader, _T]],
        send: Callable[[Reader, _T], None],
        cancelled: threading.Event,
    ) -> None:
        """Send something to each of several readers. One that is gone does not stop the others.

        Raises:
            Cancelled: `cancelled` is set, or no reader is left.
            DistributedInputError: the first error of a reader; the others were sent theirs.
        """
        problem: DistributedInputError | None = None
        for reader, item in items:
            try:
                send(reader, item)
            except Cancelled:
                if not cancelled.is_set():
                    self.remove(reader)
            except DistributedInputError as error:
                problem = problem or error
        if self.closed:
            self.running = False  # a reader that comes needs another pass
        if cancelled.is_set() or self.closed:
            raise Cancelled
        if problem is not None:
            raise problem

    # Slots.

    def allocate(self, size: int, cancelled: threading.Event, timeout_seconds: float) -> int:
        """Wait for a slot of `size` bytes and return its offset; see `UnitOutbox`.

        The wait is limited while a reader waits for a batch, and names the one that holds most.

        Raises:
            ConfigError: the slot is larger than the pool.
            UnavailableError: a reader has waited for `timeout_seconds` for another one.
            Cancelled: `cancelled` is set.
        """

        def problem() -> tuple[float, str] | None:
            with self.lock:
                holders: Iterable[Reader] = [*self._readers, *self._left]
                slowest = max(holders, key=lambda one: one.outbox.held, default=None)
            if slowest is None:
                return None
            what = (
                f"rank {slowest.rank}, which holds {slowest.outbox.held} of the batches that "
                f"it shares with {self._names(but=slowest)}"
            )
            self._waiting["slots"] = what
            self.report_wait(what, cancelled)
            if not self.trainer_waits:
                return None
            limit = timeout_seconds
            if slowest.outbox.trainer_waits:
                limit = min(HELD_SECONDS, limit)
            return limit, (
                f"no room for another batch of {size:,} bytes for {limit:.0f} s: waiting "
                f"for {what}. Check what this rank does, copy batches that are kept, or "
                "raise spec.sidecar.buffer"
            )

        try:
            return wait_for_slot(self._slots, size, cancelled, self.flush, problem)
        finally:
            self._waiting.pop("slots", None)

    def _names(self, but: Reader) -> str:
        ranks = ", ".join(str(one.rank) for one in self.readers if one is not but)
        return f"rank {ranks}" if ranks else "no other rank"


def _addressed(message: trainer_pb2.FromSidecar, reader: Reader) -> trainer_pb2.FromSidecar:
    """Return a message about the pass with the numbers of a reader."""
    own = trainer_pb2.FromSidecar()
    own.CopyFrom(message)
    getattr(own, str(own.WhichOneof("message"))).generation = reader.generation
    if own.HasField("end"):
        own.end.units = reader.sent
    return own
