"""An operator that is killed right after its writes, and started again."""

from __future__ import annotations

import pytest

from testing.api_faults.scenario import NAME, live
from tests.operator.faults.conftest import ALL


def test_a_crash_after_every_write_changes_nothing(make_place, undisturbed):
    """No process gets the response of its first write."""
    expected, writes = undisturbed
    place = make_place()
    place.proxy.kill_at = range(1, 10 * writes)
    place.operator.start()
    live(place.cluster, NAME, expected, operator=place.operator)
    print(f"{place.operator.starts} starts, {len(place.proxy.writes)} writes")
    assert place.operator.starts >= 6  # It sends the writes of one kind at the same time.
    assert len(place.proxy.writes) <= 3 * writes


@pytest.mark.skipif(not ALL, reason="in make operator-faults")
@pytest.mark.timeout(3000)
def test_a_crash_after_any_one_write_changes_nothing(make_place, undisturbed):
    """The operator continues from any prefix of its writes."""
    expected, writes = undisturbed
    place = make_place()
    place.operator.start()
    assert writes >= 15
    killed = []
    for number in range(1, writes + 1):
        place.proxy.writes.clear()
        place.proxy.injected.clear()
        place.proxy.kill_at = (number,)
        starts = place.operator.starts
        live(place.cluster, NAME, expected, operator=place.operator)
        place.proxy.kill_at = ()
        if place.proxy.injected:
            killed.append(number)
            assert place.operator.starts > starts
        assert len(place.proxy.writes) <= 2 * writes
    print(f"{writes} writes; killed after {killed}")
    # The number of status writes depends on the time: the last ones may not happen.
    assert len(killed) >= 0.8 * writes
