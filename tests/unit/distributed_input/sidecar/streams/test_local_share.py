"""The share of the streams that the worker of the sidecar's own pod gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.local_workers import PLANNED_SHARE
from distributed_input.sidecar.streams.local_share import (
    LocalSample,
    LocalShare,
    WorkerCounters,
)

CPUS = st.floats(0.0, 256.0)
RATES = st.none() | st.floats(0.001, 1e6)


def sample(
    at: float, rows: int, wait: float = 0.0, worker_rows: int = 0, busy: float = 0.0
) -> LocalSample:
    """Return a sample of a trainer whose first batch was at time 0, and of worker "w"."""
    return LocalSample(at, rows, wait, at, {"w": WorkerCounters(worker_rows, busy)})


def after(*samples: LocalSample) -> LocalShare:
    known = LocalShare()
    for one in samples:
        known = known.add(one)
    return known


def test_a_worker_that_makes_half_of_the_demand_gets_half_of_the_streams() -> None:
    # The trainer takes 200 rows/s while it does not wait. A CPU makes 50 rows/s.
    known = after(sample(0, 0), sample(2, 200, wait=1.0, worker_rows=100, busy=2.0))
    assert (known.demand, known.rate) == (200.0, 50.0)
    assert known.share(2, 8) == pytest.approx(PLANNED_SHARE * 0.5)


def test_a_worker_that_suffices_gets_all_streams() -> None:
    known = after(sample(0, 0), sample(2, 200, worker_rows=100, busy=2.0))
    assert known.share(8, 1000) == 1.0


def test_the_share_is_that_of_the_cpus_until_the_rates_are_known() -> None:
    for known in (LocalShare(), after(sample(0, 0)), after(sample(0, 0), sample(1, 100))):
        assert known.share(2, 6) == 0.25


@given(RATES, RATES, CPUS, CPUS, CPUS)
def test_more_own_cpus_never_get_fewer_streams(
    demand: float | None, rate: float | None, own: float, more: float, others: float
) -> None:
    known = LocalShare(demand, rate)
    assert 0.0 <= known.share(own, others) <= known.share(own + more, others) <= 1.0


@given(RATES, RATES, CPUS)
def test_without_other_cpus_all_streams_are_local(
    demand: float | None, rate: float | None, own: float
) -> None:
    assert LocalShare(demand, rate).share(own, 0.0) == 1.0


@given(st.floats(1.0, 1e5), st.floats(1.0, 1e5), st.floats(0.1, 64.0), st.integers(1, 2000))
def test_the_own_worker_never_gets_more_rows_to_make_than_it_can(
    demand: float, rate: float, cpus: float, streams: int
) -> None:
    share = LocalShare(demand, rate).share(cpus, 1.0)
    per_stream = demand / streams
    assert share * streams * per_stream <= cpus * rate * (1 + 1e-9)


def test_a_pause_and_an_idle_worker_change_no_rate() -> None:
    known = after(sample(0, 0), sample(2, 200, worker_rows=100, busy=2.0))
    later = known.add(sample(60, 200, worker_rows=100, busy=2.0))
    assert (later.demand, later.rate) == (known.demand, known.rate)


def test_rates_follow_the_last_seconds() -> None:
    busy = [sample(at, 1000 * at, worker_rows=100 * at, busy=at) for at in range(3)]
    slow = [
        sample(at, 2000 + 10 * (at - 2), worker_rows=200 + 5 * (at - 2), busy=at)
        for at in range(3, 30)
    ]
    known = after(*busy, *slow)
    assert known.demand == pytest.approx(10.0)
    assert known.rate == pytest.approx(5.0)


def test_a_worker_that_started_again_counts_from_its_start() -> None:
    first = LocalSample(0, 0, 0, 0, {"w": WorkerCounters(900, 3.0)})
    second = LocalSample(1, 50, 0, 1, {"v": WorkerCounters(40, 2.0)})
    assert after(first, second).rate == 20.0


def test_a_trainer_that_always_waits_has_a_finite_demand() -> None:
    known = after(sample(0, 0), sample(1, 10, wait=1.0, worker_rows=10, busy=1.0))
    assert known.demand == pytest.approx(1000.0)
