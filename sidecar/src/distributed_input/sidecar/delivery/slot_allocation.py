"""The wait for a free slot while the trainer holds all of them."""

from __future__ import annotations

import threading
import time

from distributed_input.api.errors import UnavailableError
from distributed_input.link.errors import Cancelled
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.delivery.slot_pool import SlotPool

_HELD_SECONDS = 30.0  # a trainer that waits while it holds all slots gets an error after this


class SlotAllocation:
    """Allocates the slots of one epoch.

    Args:
        slots: pool of slots.
        outbox: units on their way to the trainer.
        cancelled: event that ends a wait.
        timeout_seconds: spec.sidecar.timeoutSeconds.
    """

    def __init__(
        self,
        slots: SlotPool,
        outbox: UnitOutbox,
        cancelled: threading.Event,
        timeout_seconds: float,
    ) -> None:
        self._slots = slots
        self._outbox = outbox
        self._cancelled = cancelled
        self._timeout_seconds = min(_HELD_SECONDS, timeout_seconds)

    def allocate(self, size: int) -> int:
        """Wait for a slot of `size` bytes and return its offset.

        The wait has no limit while the trainer is behind. It is limited while the trainer waits for
        a batch and holds all slots.

        Raises:
            ConfigError: the slot is larger than the pool.
            UnavailableError: the trainer waits and holds all slots.
            Cancelled: the epoch was cancelled.
        """
        waiting_since: float | None = None
        while True:
            slot = self._slots.allocate(size, 0.0, self._cancelled)
            if slot is None:
                self._outbox.flush(self._cancelled)
                slot = self._slots.allocate(size, time.monotonic() + 1.0, self._cancelled)
            if slot is not None:
                return slot
            if self._cancelled.is_set():
                raise Cancelled
            if not self._outbox.trainer_waits:
                waiting_since = None
                continue
            waiting_since = waiting_since or time.monotonic()
            if time.monotonic() - waiting_since > self._timeout_seconds:
                raise UnavailableError(
                    f"the trainer holds all {self._slots.slots} batches that fit into the buffer "
                    f"of {self._slots.size:,} bytes and waits for another one of {size:,} bytes. "
                    "Copy batches that are kept, or raise spec.sidecar.buffer"
                )
