from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto.trainer_pb2 import Unit
from distributed_input.sidecar.delivery.ack_tracker import AckTracker


def send(acks: AckTracker, generation: int, units: int) -> None:
    for index in range(units):
        acks.add_sent(Unit(generation=generation, index=index, rows=index + 1, sizes=[3, 4]))


def test_a_sent_unit_counts_once_it_is_acknowledged() -> None:
    acks = AckTracker()
    send(acks, 1, 4)
    assert (acks.units, acks.rows, acks.bytes) == (0, 0, 0)
    assert not acks.has_all_of(1)
    acks.acknowledge(1, 3)
    assert (acks.units, acks.rows, acks.bytes) == (3, 6, 21)
    assert not acks.has_all_of(1)
    acks.acknowledge(1, 4)
    assert (acks.units, acks.rows, acks.bytes) == (4, 10, 28)
    assert acks.has_all_of(1)


def test_units_of_the_next_epoch_do_not_count_yet() -> None:
    acks = AckTracker()
    send(acks, 1, 2)
    send(acks, 2, 2)
    acks.acknowledge(1, 2)
    assert acks.units == 2
    assert acks.has_all_of(1)
    assert not acks.has_all_of(2)


def test_units_that_the_trainer_dropped_never_count() -> None:
    acks = AckTracker()
    send(acks, 1, 5)
    acks.acknowledge(1, 2)
    send(acks, 2, 5)
    acks.acknowledge(2, 1)
    assert acks.units == 3
    acks.acknowledge(1, 5)
    assert acks.units == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=4)), max_size=5))
def test_every_unit_counts_once_for_any_order_of_acknowledgements(
    epochs: list[tuple[int, list[int]]],
) -> None:
    acks, expected = AckTracker(), 0
    for generation, (sent, reports) in enumerate(epochs):
        send(acks, generation, sent)
        for units in reports:
            acks.acknowledge(generation, units)
        expected += min(sent, max(reports, default=0))
        assert acks.units == expected
