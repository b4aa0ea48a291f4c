"""The units that the trainer has received. Units that were sent may still be in the socket."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from distributed_input.api.proto import trainer_pb2


class _Sent(NamedTuple):
    generation: int
    number: int
    rows: int
    bytes: int


class AckTracker:
    """Counters of the units that the trainer has acknowledged.

    One thread may add sent units while another one acknowledges.

    Attributes:
        units: units received, in all generations.
        rows: rows in them.
        bytes: bytes of them.
    """

    def __init__(self) -> None:
        self.units = 0
        self.rows = 0
        self.bytes = 0
        self._sent: deque[_Sent] = deque()

    def add_sent(self, unit: trainer_pb2.Unit) -> None:
        """Add a unit before it is sent, in the order of generations and indices."""
        self._sent.append(_Sent(unit.generation, unit.index, unit.rows, sum(unit.sizes)))

    def acknowledge(self, generation: int, units: int) -> None:
        """Count the first `units` units of a generation as received.

        The trainer has dropped the unacknowledged units of earlier generations.
        """
        while self._sent:
            first = self._sent[0]
            if first.generation > generation:
                return
            if first.generation == generation:
                if first.number >= units:
                    return
                self.units += 1
                self.rows += first.rows
                self.bytes += first.bytes
            self._sent.popleft()

    def has_all_of(self, generation: int) -> bool:
        """Return whether all units of a generation that were sent are acknowledged."""
        return all(unit.generation != generation for unit in tuple(self._sent))
