"""What counts as received: what the trainer told of, once, whatever was sent ahead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto.trainer_pb2 import Unit
from distributed_input.sidecar.delivery.ack_tracker import Received


def send(received: Received, generation: int, units: int) -> None:
    for index in range(units):
        received.sent(Unit(generation=generation, index=index, rows=index + 1, sizes=[3, 4]))


def test_what_is_sent_is_not_yet_received() -> None:
    received = Received()
    send(received, 1, 4)
    assert (received.units, received.rows, received.bytes) == (0, 0, 0)
    assert not received.has_all_of(1)
    received.told(1, 3)
    assert (received.units, received.rows, received.bytes) == (3, 6, 21)
    assert not received.has_all_of(1)
    received.told(1, 4)
    assert (received.units, received.rows, received.bytes) == (4, 10, 28)
    assert received.has_all_of(1)


def test_units_of_an_epoch_begun_ahead_do_not_count_yet() -> None:
    received = Received()
    send(received, 1, 2)
    send(received, 2, 2)
    received.told(1, 2)
    assert received.units == 2
    assert received.has_all_of(1)
    assert not received.has_all_of(2)


def test_the_rest_of_an_epoch_that_the_trainer_dropped_never_counts() -> None:
    received = Received()
    send(received, 1, 5)
    received.told(1, 2)
    send(received, 2, 5)
    received.told(2, 1)
    assert received.units == 3
    received.told(1, 5)
    assert received.units == 3


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 5), max_size=4)), max_size=5))
def test_any_order_of_telling_counts_every_unit_once(
    epochs: list[tuple[int, list[int]]],
) -> None:
    received, expected = Received(), 0
    for generation, (sent, told) in enumerate(epochs):
        send(received, generation, sent)
        for units in told:
            received.told(generation, units)
        expected += min(sent, max(told, default=0))
        assert received.units == expected
