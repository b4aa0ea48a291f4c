"""Units and epoch ends that arrived from sidecars and were not read yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto import trainer_pb2
from distributed_input.link.trainer.trainer_end import Channel

Item: TypeAlias = trainer_pb2.Unit | trainer_pb2.EpochEnd


class BatchQueue:
    """Units and epoch ends, in the order in which they arrived, each with its connection.

    A unit leaves the queue once: it is returned by `pop`, or its slot is released.
    """

    def __init__(self) -> None:
        self._items: deque[tuple[Channel, Item]] = deque()
        self._last: tuple[Channel, int] | None = None  # connection and generation of the last
        self._units = 0  # units of that generation that arrived on that connection

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, channel: Channel, message: trainer_pb2.FromSidecar) -> None:
        """Append the units or the epoch end of a message; ignore other messages.

        Raises:
            TerminalError: a unit is missing or repeated. Its slot and the later ones are released.
        """
        kind = message.WhichOneof("message")
        if kind == "unit":
            self._add(channel, [message.unit])
        elif kind == "units":
            self._add(channel, message.units.units)
        elif kind == "end":
            end = message.end
            self._check(channel, end.generation, end.units, f"the end after {end.units} units")
            self._items.append((channel, end))

    def _add(self, channel: Channel, units: Sequence[trainer_pb2.Unit]) -> None:
        for place, unit in enumerate(units):
            try:
                self._check(channel, unit.generation, unit.index, f"unit {unit.index}")
            except TerminalError:
                self._units = units[-1].index + 1  # report one gap once
                for dropped in units[place:]:
                    channel.release(dropped.slot)
                raise
            self._units += 1
            self._items.append((channel, unit))

    def _check(self, channel: Channel, generation: int, index: int, what: str) -> None:
        """Raise TerminalError unless `index` units of this generation arrived before."""
        if self._last != (channel, generation):
            self._last, self._units = (channel, generation), 0
        if index != self._units:
            missing = "are missing" if index > self._units else "came again"
            raise TerminalError(
                f"{what} of generation {generation} arrived after {self._units} units of "
                f"it, so batches {missing}. Check that no other process or library reads from the "
                "sidecar's socket. Iterating again continues behind the last batch"
            )

    def has_next(self, generation: int) -> bool:
        """Return whether the oldest item is of this generation. Another thread may pop it."""
        try:
            return self._items[0][1].generation == generation
        except IndexError:
            return False

    def pop(self, generation: int) -> tuple[Channel, Item] | None:
        """Return the oldest unit or end of this generation, or None if there is none.

        Items of earlier generations are dropped: their slots are released. Those of later
        generations stay: they belong to another iterator.
        """
        while self._items and self._items[0][1].generation <= generation:
            channel, item = self._items.popleft()
            if item.generation == generation:
                return channel, item
            _release(channel, item)
        return None

    def keep_only(self, generation: int) -> list[trainer_pb2.Unit]:
        """Drop the items of other generations, release their slots, and return the other units."""
        items, self._items = self._items, deque()
        for channel, item in items:
            if item.generation == generation:
                self._items.append((channel, item))
            else:
                _release(channel, item)
        return [item for _, item in self._items if isinstance(item, trainer_pb2.Unit)]

    def clear(self) -> None:
        """Drop all items and release their slots."""
        self._last = None
        self.keep_only(0)  # the first generation is 1


def _release(channel: Channel, item: Item) -> None:
    if isinstance(item, trainer_pb2.Unit):
        channel.release(item.slot)
