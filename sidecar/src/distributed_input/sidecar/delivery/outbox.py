"""The units on their way to one trainer, and the slots that the trainer holds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from distributed_input.api.errors import DistributedInputError, UnavailableError, as_utf8
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_TRAINER_BYTES
from distributed_input.link.errors import Cancelled
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.sidecar.delivery.ack_tracker import AckTracker
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.delivery.trainer_times import TrainerTimes

_SMALL_BYTES = 256 << 10  # a packet of its own for a smaller unit costs as much as its rows
_PENDING_UNITS = 16  # most units in one packet
_PAUSE_SECONDS = 4.0  # a trainer that waits for a unit reports it after 2 s
_ERROR_CHARACTERS = 20_000  # each has at most six bytes, and a packet is limited
HELD_SECONDS = 30.0
"""A trainer that waits for a batch while it holds all slots gets an error after this."""
_TURN_SECONDS = 0.1  # between looks at whether a thread that waits for another one is cancelled
_FIELD_BYTES = 8  # most bytes of a field's tag and length


class UnitOutbox:
    """Sends an epoch's messages. Small units are kept back, to be sent several at once.

    Args:
        socket: the connection to the trainer.
        slots: slots of the units.
        keeps_unsent: keep what was not sent because of a cancellation for the next `flush`.
            Default: the trainer needs it no more.

    Attributes:
        acks: units that the trainer has received.
        trainer_waits: whether the trainer has reported that it waits.
    """

    def __init__(
        self, socket: TrainerSocket, slots: SlotPool, *, keeps_unsent: bool = False
    ) -> None:
        self.acks = AckTracker()
        self.trainer_waits = False
        self._reported_at: float | None = None
        self._times = TrainerTimes()
        self._socket = socket
        self._slots = slots
        self._keeps_unsent = keeps_unsent
        self._held: set[int] = set()  # slots that the trainer holds, or will
        self._held_lock = threading.Lock()
        self._pending: list[trainer_pb2.Unit | trainer_pb2.FromSidecar] = []
        self._pending_lock = threading.Lock()
        self._sending = threading.Lock()  # several threads send: what is kept back comes first

    @property
    def closed(self) -> bool:
        """Whether nothing may be sent any more."""
        return self._socket.closed.is_set()

    def record_progress(self, progress: trainer_pb2.Progress) -> None:
        """Record what the trainer reports of the units it has received and of its waits."""
        now = time.monotonic()
        self.trainer_waits, self._reported_at = progress.waiting, now
        self._times = self._times.after(progress, now)
        if not progress.waiting:
            self.acks.acknowledge(progress.generation, progress.units)

    def times(self) -> TrainerTimes:
        """Return the trainer's times until now."""
        return self._times.until(time.monotonic())

    def end_times(self) -> None:
        """Let the trainer's times stand still, because it is gone."""
        self._times = self.times().stopped()

    @property
    def trainer_pauses(self) -> bool:
        """Whether the trainer has read before, and neither reads nor waits for some seconds."""
        if self._reported_at is None or self.trainer_waits:
            return False
        return time.monotonic() - self._reported_at > _PAUSE_SECONDS

    def send(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        """Send a message, behind all units. Wait while the trainer is behind.

        Raises:
            Cancelled: `cancelled` is set, or the connection is closed.
        """
        try:
            with self._turn(cancelled):
                self._flush(cancelled)
                self._socket.send(message, cancelled)
        except Cancelled:
            if self._keeps(cancelled):
                with self._pending_lock:
                    self._pending.append(message)
            raise

    def send_unit(self, unit: trainer_pb2.Unit, cancelled: threading.Event) -> None:
        """Send a unit now, or keep a small one back until there are several, or until `flush`.

        The outbox releases the unit's slot, also if the trainer never gets the unit.

        Raises:
            Cancelled: `cancelled` is set, or the connection is closed.
            ConfigError: the unit has too many components.
        """
        with self._held_lock:
            self._held.add(unit.slot)
        self.acks.add_sent(unit)
        with self._pending_lock:
            self._pending.append(unit)
            few = sum(unit.sizes) < _SMALL_BYTES and len(self._pending) < _PENDING_UNITS
            if few and not self.closed:
                return
        self.flush(cancelled)

    @property
    def has_unsent(self) -> bool:
        """Whether units or messages are kept back."""
        return bool(self._pending)

    def flush(self, cancelled: threading.Event) -> None:
        """Send what is kept back."""
        with self._turn(cancelled):
            self._flush(cancelled)

    @contextlib.contextmanager
    def _turn(self, cancelled: threading.Event) -> Iterator[None]:
        """Wait until no other thread sends.

        Raises:
            Cancelled: `cancelled` is set, or the connection is closed.
        """
        while not self._sending.acquire(timeout=_TURN_SECONDS):
            if cancelled.is_set() or self.closed:
                self._drop(self._take(), cancelled)
                raise Cancelled
        try:
            yield
        finally:
            self._sending.release()

    def _flush(self, cancelled: threading.Event) -> None:
        pending = self._take()
        while pending:
            message, count = _next_message(pending)
            try:
                self._socket.send(message, cancelled)
            except (Cancelled, DistributedInputError):
                self._drop(pending, cancelled)
                raise
            pending = pending[count:]

    def _take(self) -> list[trainer_pb2.Unit | trainer_pb2.FromSidecar]:
        with self._pending_lock:
            pending, self._pending = self._pending, []
        return pending

    def _drop(
        self, pending: list[trainer_pb2.Unit | trainer_pb2.FromSidecar], cancelled: threading.Event
    ) -> None:
        """Release the slots of what was not sent, or keep it for the next `flush`."""
        if self._keeps(cancelled):
            with self._pending_lock:
                self._pending[:0] = pending
        else:
            self.release([one.slot for one in pending if isinstance(one, trainer_pb2.Unit)])

    def _keeps(self, cancelled: threading.Event) -> bool:
        """Return whether what was not sent is kept."""
        return self._keeps_unsent and cancelled.is_set() and not self.closed

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        """Send the trainer what the sidecar waits for, if the trainer waits.

        Without it, the trainer would look for another sidecar.
        """
        if self.trainer_waits:
            waiting = trainer_pb2.Waiting(what=what)
            self.send(trainer_pb2.FromSidecar(waiting=waiting), cancelled)

    def release(self, slots: Iterable[int]) -> None:
        """Release slots that the trainer has finished with. Ignore slots that it does not hold."""
        with self._held_lock:
            held = self._held.intersection(slots)
            self._held -= held
        for slot in held:
            self._slots.release(slot)

    def allocate(self, size: int, cancelled: threading.Event, timeout_seconds: float) -> int:
        """Wait for a slot of `size` bytes and return its offset.

        The wait has no limit while the trainer is behind. It is limited while the trainer waits for
        a batch and holds all slots.

        Raises:
            ConfigError: the slot is larger than the pool.
            UnavailableError: the trainer waits and holds all slots.
            Cancelled: `cancelled` is set.
        """

        def problem() -> tuple[float, str] | None:
            if not self.trainer_waits:
                return None
            return min(HELD_SECONDS, timeout_seconds), (
                f"the trainer holds all {self._slots.slots} batches that fit into the buffer "
                f"of {self._slots.size:,} bytes and waits for another one of {size:,} bytes. "
                "Copy batches that are kept, or raise spec.sidecar.buffer"
            )

        return wait_for_slot(self._slots, size, cancelled, self.flush, problem)

    @property
    def held(self) -> int:
        """Number of slots that the trainer holds, or that are on their way to it."""
        return len(self._held)

    @property
    def holds_slots(self) -> bool:
        """Whether the trainer holds slots."""
        return bool(self._held)

    def release_all(self) -> None:
        """Release all slots, because the trainer is gone."""
        with self._held_lock:
            for slot in self._held:
                self._slots.release(slot)
            self._held.clear()


def wait_for_slot(
    slots: SlotPool,
    size: int,
    cancelled: threading.Event,
    flush: Callable[[threading.Event], None],
    problem: Callable[[], tuple[float, str] | None],
) -> int:
    """Wait for a slot of `size` bytes and return its offset.

    Args:
        slots: the slots.
        size: bytes.
        cancelled: ends the wait.
        flush: sends what is kept back. It is called before each wait.
        problem: returns how many seconds the wait may last, and the error. None: no limit, because
            the trainer is behind. It is called each second.

    Raises:
        ConfigError: the slot is larger than the pool.
        UnavailableError: the wait has lasted as long as it may.
        Cancelled: `cancelled` is set.
    """
    waiting_since: float | None = None
    while True:
        slot = slots.allocate(size, 0.0, cancelled)
        if slot is None:
            flush(cancelled)
            slot = slots.allocate(size, time.monotonic() + 1.0, cancelled)
        if slot is not None:
            return slot
        if cancelled.is_set():
            raise Cancelled
        found = problem()
        if found is None:
            waiting_since = None
            continue
        waiting_since = waiting_since or time.monotonic()
        limit, text = found
        if time.monotonic() - waiting_since > limit:
            raise UnavailableError(text)


def failure_message(error: DistributedInputError, generation: int = 0) -> trainer_pb2.FromSidecar:
    """Return the message whose error the trainer's iterator raises.

    Args:
        error: error to report.
        generation: generation of units that failed, or 0 for the whole connection.
    """
    text = as_utf8(str(error)[:_ERROR_CHARACTERS])
    module = DistributedInputError.__module__  # the trainer does not know the sidecar's own errors
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == module)
    failure = trainer_pb2.Failure(kind=kind, message=text, generation=generation)
    return trainer_pb2.FromSidecar(failure=failure)


def _next_message(
    pending: Sequence[trainer_pb2.Unit | trainer_pb2.FromSidecar],
) -> tuple[trainer_pb2.FromSidecar, int]:
    """Return the first message, or one of the first units, and how many of the items it has."""
    if isinstance(pending[0], trainer_pb2.FromSidecar):
        return pending[0], 1
    units: list[trainer_pb2.Unit] = []
    for one in pending:
        if isinstance(one, trainer_pb2.FromSidecar):
            break
        units.append(one)
    count = _count_in_packet(units)
    return _message(units[:count]), count


def _count_in_packet(units: Sequence[trainer_pb2.Unit]) -> int:
    """Return how many of the units fit into one packet, at least one.

    The positions of many partitions are long, and each unit may have one.
    """
    left = TO_TRAINER_BYTES - _FIELD_BYTES
    for count, unit in enumerate(units):
        left -= unit.ByteSize() + _FIELD_BYTES
        if left < 0:
            return max(1, count)
    return len(units)


def _message(units: Sequence[trainer_pb2.Unit]) -> trainer_pb2.FromSidecar:
    if len(units) == 1:
        return trainer_pb2.FromSidecar(unit=units[0])
    return trainer_pb2.FromSidecar(units=trainer_pb2.Units(units=units))
