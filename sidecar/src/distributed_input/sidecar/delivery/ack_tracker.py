"""What a trainer has received. Units that were sent may still lie in the socket."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from distributed_input.api.proto import trainer_pb2


class _Sent(NamedTuple):
    generation: int
    number: int
    rows: int
    bytes: int


class Received:
    """Units that the trainer has told of. One thread may send while another tells.

    Attributes:
        units: received, over all generations.
        rows: in them.
        bytes: of them.
    """

    def __init__(self) -> None:
        self.units = 0
        self.rows = 0
        self.bytes = 0
        self._sent: deque[_Sent] = deque()

    def sent(self, unit: trainer_pb2.Unit) -> None:
        """A unit is about to be sent, in the order of generations and indices."""
        self._sent.append(_Sent(unit.generation, unit.index, unit.rows, sum(unit.sizes)))

    def told(self, generation: int, units: int) -> None:
        """The trainer has received the first `units` units of a generation.

        Units of earlier generations that it has not told of, it has dropped.
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
        """Whether the trainer has all units of a generation that were sent."""
        return all(unit.generation != generation for unit in tuple(self._sent))
