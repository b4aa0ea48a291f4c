from __future__ import annotations

from distributed_input.api.proto import types_pb2
from distributed_input.sidecar.inputs.consumer_stats import ConsumerStats


def test_counts_are_added_and_states_are_the_later_ones() -> None:
    earlier = ConsumerStats(1, 2, 3, 4, 5.0, 6.0, 0.7, 8, True, "rows", 9)
    later = ConsumerStats(10, 20, 30, 40, 50.0, 60.0, 0.5, 80, False, "", 90)
    totals = types_pb2.ReceivedTotals(rows=7)
    assert ConsumerStats(received=totals).after(ConsumerStats()).received is totals
    assert ConsumerStats().after(ConsumerStats(received=totals)).received is totals
    assert later.after(earlier) == ConsumerStats(10, 22, 33, 44, 55.0, 66.0, 0.5, 80, False, "", 90)
