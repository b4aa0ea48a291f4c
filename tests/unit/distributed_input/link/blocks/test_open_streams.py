"""Streams are counted, limited and refused while the worker drains."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.link.blocks.open_streams import OpenStreams, StreamCounters, sum_counters


def test_more_streams_than_the_limit_are_refused_until_one_ends() -> None:
    streams = OpenStreams(2)
    first, _ = streams.enter(), streams.enter()
    with pytest.raises(UnavailableError, match="2 streams open"):
        streams.enter()
    assert streams.count == 2
    streams.leave(first)
    assert not streams.idle.is_set()
    streams.enter()
    assert streams.count == 2


def test_a_draining_worker_takes_no_more_streams() -> None:
    streams = OpenStreams(2)
    counters = streams.enter()
    streams.draining.set()
    with pytest.raises(UnavailableError, match="draining"):
        streams.enter()
    assert not streams.idle.is_set()
    streams.leave(counters)
    assert streams.idle.is_set()


def test_the_totals_have_open_and_closed_streams() -> None:
    streams = OpenStreams(3)
    first, second = streams.enter(), streams.enter()
    first.rows, second.rows = 3, 4
    streams.leave(first)
    second.rows = 5
    streams.record_stall(0.5)
    totals = streams.totals()
    assert (totals.rows, totals.stall_seconds) == (8, 0.5)
    streams.leave(second)
    assert streams.totals().rows == 8


def test_failures_are_counted_by_class() -> None:
    streams = OpenStreams(1)
    for kind in ("A", "B", "A"):
        streams.record_failure(kind)
    assert streams.failures == {"A": 2, "B": 1}


def test_every_field_of_counters_is_added_and_the_parts_stay_as_they_are() -> None:
    one, other = StreamCounters(1, 2, 3.0, 4, 5.0, 6), StreamCounters(10, 20, 30.0, 40, 50.0, 60)
    assert sum_counters([one, other]) == StreamCounters(11, 22, 33.0, 44, 55.0, 66)
    assert one == StreamCounters(1, 2, 3.0, 4, 5.0, 6)
    assert sum_counters([]) == StreamCounters()
