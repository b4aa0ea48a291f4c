"""A unit leaves the queue once: in order to its iterator, or back to the sidecar."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto import trainer_pb2
from distributed_input.link.trainer.trainer_end import Channel
from distributed_input.trainer.batch_queue import BatchQueue

GENERATIONS = st.integers(1, 3)


class Source(Channel):
    """A connection that records the slots that it was given back."""

    def __init__(self) -> None:
        self.released: list[int] = []

    def __del__(self) -> None:
        """Do nothing: it has no socket."""

    def release(self, slot: int) -> None:
        self.released.append(slot)


def unit(generation: int, slot: int, index: int = 0) -> trainer_pb2.Unit:
    return trainer_pb2.Unit(generation=generation, slot=slot, index=index)


def message(*units: trainer_pb2.Unit) -> trainer_pb2.FromSidecar:
    if len(units) == 1:
        return trainer_pb2.FromSidecar(unit=units[0])
    return trainer_pb2.FromSidecar(units=trainer_pb2.Units(units=units))


def filled(source: Source, generations: list[int], together: bool = False) -> BatchQueue:
    """A queue with one unit of each generation; the slot is the index."""
    queue = BatchQueue()
    slots = itertools.count()
    units = [
        unit(generation, next(slots), index)
        for generation, alike in itertools.groupby(generations)
        for index, _ in enumerate(alike)
    ]
    if together:
        queue.add(source, message(*units))
    else:
        for one in units:
            queue.add(source, message(one))
    return queue


def slots_of(generations: list[int], generation: int) -> list[int]:
    return [slot for slot, found in enumerate(generations) if found == generation]


def popped(queue: BatchQueue, generation: int) -> list[int]:
    slots = []
    while (item := queue.pop(generation)) is not None:
        assert isinstance(item[1], trainer_pb2.Unit)
        slots.append(item[1].slot)
    return slots


@given(generations=st.lists(GENERATIONS), generation=GENERATIONS, together=st.booleans())
def test_units_of_a_generation_come_in_order_and_once(
    generations: list[int], generation: int, together: bool
) -> None:
    """Units of later generations stay, for the iterator that they belong to."""
    source, generations = Source(), sorted(generations)
    queue = filled(source, generations, together)
    assert queue.has_next(generation) == (generations[:1] == [generation])
    mine = popped(queue, generation)
    assert mine == slots_of(generations, generation)
    later = [item.slot for _, item in queue._items if isinstance(item, trainer_pb2.Unit)]
    assert later == [slot for slot, one in enumerate(generations) if one > generation]
    assert sorted(mine + source.released + later) == list(range(len(generations)))


@given(generations=st.lists(GENERATIONS), generation=GENERATIONS)
def test_units_of_other_generations_can_be_released_early(
    generations: list[int], generation: int
) -> None:
    source = Source()
    queue = filled(source, generations)
    mine = slots_of(generations, generation)
    assert [found.slot for found in queue.keep_only(generation)] == mine
    assert sorted(mine + source.released) == list(range(len(generations)))
    assert popped(queue, generation) == mine


@given(generations=st.lists(GENERATIONS))
def test_clearing_releases_every_slot(generations: list[int]) -> None:
    source = Source()
    queue = filled(source, generations)
    queue.clear()
    assert source.released == list(range(len(generations)))
    assert not queue


def test_the_end_of_an_epoch_follows_its_units() -> None:
    source = Source()
    queue = filled(source, [2])
    queue.add(source, trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=1)))
    queue.add(source, trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=2)))
    kinds = [item[1].DESCRIPTOR.name for item in iter(lambda: queue.pop(2), None)]
    assert kinds == ["Unit", "EpochEnd"], "the end of generation 1 is dropped"


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([1], "unit 1 of generation 1 arrived after 0 units of it, so batches are missing"),
        ([0, 1, 3], "unit 3 .* after 2 units of it, so batches are missing"),
        ([0, 0], "unit 0 .* after 1 units of it, so batches came again"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_missing_or_repeated_unit_is_an_error(
    indices: list[int], expected: str, together: bool
) -> None:
    source, queue = Source(), BatchQueue()
    units = [unit(1, slot, index) for slot, index in enumerate([*indices, indices[-1] + 1])]
    packets = [message(*units)] if together else [message(one) for one in units[:-1]]
    for packet in packets[:-1]:
        queue.add(source, packet)
    with pytest.raises(TerminalError, match=expected):
        queue.add(source, packets[-1])
    first_wrong = len(indices) - 1
    assert source.released == [one.slot for one in units[first_wrong:]][: 2 if together else 1]
    assert popped(queue, 1) == [one.slot for one in units[:first_wrong]]
    queue.add(source, message(unit(1, 98, indices[-1] + (2 if together else 1))))  # on its way
    queue.add(source, message(unit(3, 99)))
    assert popped(queue, 3) == [99], "one gap is reported once"


def test_the_end_reports_that_the_last_units_are_missing() -> None:
    source = Source()
    queue = filled(source, [1, 1])
    end = trainer_pb2.EpochEnd(generation=1, units=3)
    with pytest.raises(TerminalError, match=r"end after 3 units .* after 2 units of it"):
        queue.add(source, trainer_pb2.FromSidecar(end=end))


def test_a_slot_goes_back_to_the_connection_that_it_came_from() -> None:
    first, second = Source(), Source()
    queue = BatchQueue()
    queue.add(first, message(unit(1, 10)))
    queue.add(second, message(unit(1, 20)))
    queue.clear()
    assert (first.released, second.released) == ([10], [20])
