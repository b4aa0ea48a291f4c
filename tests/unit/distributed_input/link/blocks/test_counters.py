"""Counters of streams add up field by field."""

from __future__ import annotations

from distributed_input.link.blocks.counters import StreamCounters, sum_counters


def test_the_sum_of_nothing_is_zero() -> None:
    assert sum_counters([]) == StreamCounters()


def test_every_field_is_added_and_the_parts_stay_as_they_are() -> None:
    one, other = StreamCounters(1, 2, 3.0, 4, 5.0, 6), StreamCounters(10, 20, 30.0, 40, 50.0, 60)
    assert sum_counters([one, other]) == StreamCounters(11, 22, 33.0, 44, 55.0, 66)
    assert one == StreamCounters(1, 2, 3.0, 4, 5.0, 6)
