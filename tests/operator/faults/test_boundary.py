"""The life of an input behind a proxy with faults ends in the states of an undisturbed one."""

from __future__ import annotations

import pytest

from testing.api_faults.proxy import NO_FAULTS, Faults
from testing.api_faults.scenario import NAME, converged, live, remains
from testing.operator.processes import eventually, manifest
from tests.operator.faults.conftest import ALL

FAULTS = {
    "409": Faults(statuses=(409,), failing=0.1),
    "429": Faults(statuses=(429,), failing=0.1),
    "500": Faults(statuses=(500,), failing=0.1),
    "lost requests": Faults(lost_before=0.1),
    "lost responses": Faults(lost_after=0.1),
    "cut watches": Faults(cut=0.3),
    "duplicated events": Faults(duplicated=0.5),
    "slow watches": Faults(slow=2.0),
    "all": Faults((409, 429, 500), 0.1, 0.05, 0.05, 0.1, 0.2, 0.5),
}
SEEDS = range(3 if ALL else 1)
QUICK = ("lost responses", "cut watches", "duplicated events")
"""Those that each test run has."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", FAULTS if ALL else QUICK)
def test_faults_change_nothing(make_place, undisturbed, what, seed):
    expected, writes = undisturbed
    place = make_place(seed)
    place.operator.start()
    place.proxy.faults = FAULTS[what]
    live(place.cluster, NAME, expected, operator=place.operator)
    place.proxy.faults = NO_FAULTS
    print(f"{what}: {place.proxy.injected}, {len(place.proxy.writes)} of {writes} writes")
    assert sum(place.proxy.injected.values()) >= (0 if what == "slow watches" else 3)
    assert len(place.proxy.writes) <= 3 * writes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_restart_with_stale_lists_revives_nothing(make_place, undisturbed, seed):
    """Its lists show an input that was deleted, and created again with the same name."""
    (expected, *_), _ = undisturbed
    place = make_place(seed)
    cluster, spec = place.cluster, {"workers": {"replicas": 1}}
    place.operator.start()
    cluster.create(manifest("past", **spec))
    converged(cluster, "past", expected)
    cluster.create(manifest("gone", **spec))
    converged(cluster, "gone", expected)
    place.operator.restart()  # Its lists are those that the next one gets.
    eventually(lambda: len(place.proxy.watches) >= 16)
    for name in ("past", "gone"):
        cluster.delete("DistributedInput", name)
        eventually(lambda one=name: not remains(cluster, one))
    cluster.create(manifest("past", **spec))
    converged(cluster, "past", expected)
    before = len(place.proxy.writes)
    place.proxy.serve_stale_lists(6.0)
    place.operator.restart()
    eventually(lambda: place.proxy.injected.get("stale list"))
    converged(cluster, "past", expected, quiet=8.0)
    assert not remains(cluster, "gone")
    wrote = place.proxy.writes[before:]
    print("writes with stale lists:", wrote)
    assert not [one for one in wrote if "gone" in one and "DistributedInput" not in one]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("skew", [3600.0, -3600.0] if ALL else [3600.0])
def test_a_wrong_clock_changes_nothing(make_place, undisturbed, skew):
    """The next operator's clock is wrong the other way: times in the status are in its future."""
    expected, _ = undisturbed
    place = make_place()
    place.operator.skew = skew
    place.operator.start()

    def other_way() -> None:
        place.operator.skew = -place.operator.skew
        place.operator.restart()

    live(place.cluster, NAME, expected, between=other_way, operator=place.operator)
