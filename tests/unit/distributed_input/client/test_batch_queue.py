"""A unit leaves the queue once: in order to its iterator, or back to the sidecar."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import trainer_pb2
from distributed_input.client.batch_queue import BatchQueue, ReceivedUnit
from distributed_input.client.ring import Batch

GENERATIONS = st.integers(1, 3)


class Source:
    """A connection that records the slots that it was given back."""

    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self, slot: int) -> None:
        self.released.append(slot)

    def batch(self, unit: trainer_pb2.Unit) -> Batch:
        return Batch(unit.rows, [])


def unit(generation: int, slot: int) -> trainer_pb2.Unit:
    return trainer_pb2.Unit(generation=generation, slot=slot)


def filled(source: Source, generations: list[int], together: bool = False) -> BatchQueue:
    """A queue with one unit of each generation; the slot is the index."""
    queue = BatchQueue()
    units = [unit(generation, slot) for slot, generation in enumerate(generations)]
    if together:
        queue.add(source, trainer_pb2.FromSidecar(units=trainer_pb2.Units(units=units)))
    else:
        for one in units:
            queue.add(source, trainer_pb2.FromSidecar(unit=one))
    return queue


def slots_of(generations: list[int], generation: int) -> list[int]:
    return [slot for slot, found in enumerate(generations) if found == generation]


def popped(queue: BatchQueue, generation: int) -> list[int]:
    slots = []
    while (item := queue.pop(generation)) is not None:
        assert isinstance(item, ReceivedUnit)
        slots.append(item.unit.slot)
    return slots


@given(generations=st.lists(GENERATIONS), generation=GENERATIONS, together=st.booleans())
def test_units_of_a_generation_come_in_order_and_once(
    generations: list[int], generation: int, together: bool
) -> None:
    source = Source()
    queue = filled(source, generations, together)
    mine = popped(queue, generation)
    assert mine == slots_of(generations, generation)
    assert sorted(mine + source.released) == list(range(len(generations)))
    assert not queue


@given(generations=st.lists(GENERATIONS), generation=GENERATIONS)
def test_units_of_other_generations_can_be_released_early(
    generations: list[int], generation: int
) -> None:
    source = Source()
    queue = filled(source, generations)
    queue.keep_only(generation)
    mine = slots_of(generations, generation)
    assert [found.slot for found in queue.units()] == mine
    assert sorted(mine + source.released) == list(range(len(generations)))
    assert popped(queue, generation) == mine


@given(generations=st.lists(GENERATIONS))
def test_clearing_releases_every_slot(generations: list[int]) -> None:
    source = Source()
    queue = filled(source, generations)
    queue.clear()
    assert source.released == list(range(len(generations)))
    assert not queue


def test_a_slot_goes_back_to_the_connection_that_it_came_from() -> None:
    first, second = Source(), Source()
    queue = BatchQueue()
    queue.add(first, trainer_pb2.FromSidecar(unit=unit(1, 10)))
    queue.add(second, trainer_pb2.FromSidecar(unit=unit(1, 20)))
    queue.clear()
    assert (first.released, second.released) == ([10], [20])


def test_the_end_of_an_epoch_follows_its_units() -> None:
    source = Source()
    queue = filled(source, [2])
    queue.add(source, trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=1)))
    queue.add(source, trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=2)))
    assert isinstance(queue.pop(2), ReceivedUnit)
    end = queue.pop(2)
    assert isinstance(end, trainer_pb2.EpochEnd), "the end of generation 1 is dropped"
    assert end.generation == 2
    assert queue.pop(2) is None


def test_other_messages_are_ignored() -> None:
    queue = BatchQueue()
    queue.add(Source(), trainer_pb2.FromSidecar(waiting=trainer_pb2.Waiting(what="rows")))
    assert not queue
