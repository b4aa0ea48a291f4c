"""Rates, demand and pauses, from the samples of a dispatcher."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.local_workers import PLANNED_SHARE
from distributed_input_operator.autoscaling.decision import needed_workers, recommended_workers
from distributed_input_operator.autoscaling.rates import (
    MAX_KEPT,
    PAUSE_SECONDS,
    RECONCILE_SECONDS,
    STALLED_RECONCILE_SECONDS,
    ConsumerCounters,
    DispatcherSample,
    Measurement,
    RateWindow,
    WorkerCounters,
    measure,
    met_locally,
    reconcile_interval,
)


def sample(time, rows, wait=0.0, *, busy=None, trainers=1):
    """Return a sample `time` seconds after the start; one worker produced all rows in `busy` s."""
    one = ConsumerCounters(rows=int(rows / trainers), wait=wait, wall=time, batches=int(time))
    consumers = {str(number): one for number in range(trainers)}
    workers = {"w": WorkerCounters(rows=int(rows), busy=busy or time)}
    return DispatcherSample(time, consumers, workers)


def measured(samples):
    """Return the window's measurement after each sample."""
    window, found = RateWindow(), []
    for one in samples:
        window = window.add(one)
        found.append(window.measurement)
    return found


def test_demand_and_busy_rate_are_measured_between_two_samples():
    before = DispatcherSample(
        0.0, {"a": ConsumerCounters(wall=1.0)}, {"w": WorkerCounters("10.0.0.1:7071")}
    )
    # In 10 s the trainer waited 7.5 s: 300 rows in 2.5 s are 120 per second. One stream produced
    # 300 rows in 10 s.
    after = DispatcherSample(
        10.0,
        {
            "a": ConsumerCounters(
                rows=300, wait=7.5, wall=11.0, useful_workers=16, useful_limit="memory"
            )
        },
        {"w": WorkerCounters("10.0.0.1:7071", rows=300, busy=10.0, streams=3)},
    )
    found = measure(before, after)
    assert (found.demand, found.busy_rate) == (120.0, 30.0)
    assert (found.rows_per_second, found.stall) == (30.0, 0.75)
    assert (found.useful_workers, found.useful_limit) == (16, "memory")
    assert found.streams == {"10.0.0.1": 3}
    assert recommended_workers(found, 1) == 4
    assert recommended_workers(found, 2) == 2


def test_a_restarted_sidecar_or_worker_has_no_rate():
    before = DispatcherSample(
        0.0,
        {"a": ConsumerCounters(rows=500, wall=9.0)},
        {"w": WorkerCounters(rows=900, busy=9.0)},
    )
    after = DispatcherSample(
        10.0, {"a": ConsumerCounters(rows=5, wall=0.1)}, {"w": WorkerCounters(rows=9, busy=0.1)}
    )
    found = measure(before, after)
    assert found.demand is None
    assert found.busy_rate is None
    assert recommended_workers(found, 1) is None


def test_a_change_of_load_shows_within_ten_seconds_and_noise_is_averaged():
    steady = [sample(10.0 * n, 1000 * n + 50 * (n % 2)) for n in range(10)]
    assert all(m.demand == pytest.approx(100, rel=0.06) for m in measured(steady)[1:])
    assert measured(steady)[-1].demand == pytest.approx(100, rel=0.01)
    # The trainer reads four times as much from here on.
    faster = [sample(90.0 + 10 * n, 9000 + 4000 * n) for n in range(1, 3)]
    found = [m.demand for m in measured([*steady, *faster])[-2:]]
    assert found == pytest.approx([400, 400], rel=0.02)


def test_few_batches_do_not_count_as_a_change_of_load():
    slow = [
        DispatcherSample(
            10.0 * n, {"a": ConsumerCounters(rows=1000 * n, wall=10.0 * n, batches=n)}, {}
        )
        for n in range(5)
    ]
    burst = DispatcherSample(50.0, {"a": ConsumerCounters(rows=8000, wall=50.0, batches=6)}, {})
    assert measured([*slow, burst])[-1].demand == pytest.approx(160)


def test_a_new_trainer_counts_as_soon_as_it_has_a_rate():
    alone = [sample(10.0 * n, 1000 * n) for n in range(6)]
    both = [sample(10.0 * n, 2000 * n, trainers=2) for n in range(6, 9)]
    assert measured([*alone, *both])[-1].demand == pytest.approx(200)


def test_a_short_pause_keeps_the_demand_and_a_long_one_ends_it():
    work = [sample(10.0 * n, 1000 * n) for n in range(7)]
    still = [sample(60.0 + 10 * n, 6000, busy=60.0) for n in range(1, 60)]
    during = measured([*work, *still])[7:]
    assert [m.paused for m in during] == [True] * 59
    kept = [m for m in during if m.demand == pytest.approx(100)]
    assert len(kept) * 10 == pytest.approx(PAUSE_SECONDS, abs=10)
    needs = [needed_workers(m, 1) for m in during]
    assert needs[0] == pytest.approx(1)
    assert needs[-1] == 0, "workers that were not used for five minutes may go"
    assert recommended_workers(during[-1], 1) == 1, "a trainer still reads"


def test_the_need_is_unknown_until_the_first_row():
    """Trainers that compile for a minute neither read nor wait."""
    still = [
        DispatcherSample(10.0 * n, {"a": ConsumerCounters(wall=10.0 * n)}, {}) for n in range(7)
    ]
    assert [needed_workers(m, 1) for m in measured(still)] == [None] * 7


def test_a_long_wait_is_stall_and_does_not_change_the_demand():
    """A trainer that waits for one batch for minutes shows no demand, and not a demand of 0."""
    work = [sample(10.0 * n, 1000 * n) for n in range(7)]
    waits = [sample(60.0 + 10 * n, 6000, 10.0 * n, busy=60.0) for n in range(1, 20)]
    found = measured([*work, *waits])
    assert found[12].demand == pytest.approx(100), "the window has its work"
    assert found[-1].stall == pytest.approx(1.0)
    assert not any(m.paused for m in found)
    assert found[-1].demand is None
    assert needed_workers(found[-1], 1) is None


def test_an_input_that_stalls_is_reconciled_more_often():
    assert reconcile_interval(Measurement(consumers=1, stall=0.5)) == STALLED_RECONCILE_SECONDS
    assert reconcile_interval(Measurement(consumers=1, stall=0.01)) == RECONCILE_SECONDS


# Workers in the trainers' own pods.


def beside(time: float, rate: float, local_cpus: float, *, remote_rows: float = 0.0):
    """Return a sample of a trainer that takes `rate` rows/s; one CPU produces 10 rows/s."""
    local = rate * time - remote_rows
    return DispatcherSample(
        time,
        {"0": ConsumerCounters(rows=int(rate * time), wall=time, batches=int(time), pod="p")},
        {
            "own": WorkerCounters(
                rows=int(local), busy=local / 10, pod="p", permits=local_cpus * time
            ),
            "w": WorkerCounters("10.0.0.1:7071", rows=int(remote_rows), busy=remote_rows / 20),
        },
    )


def test_the_rate_of_own_workers_is_that_of_the_cpus_they_might_use():
    found = measure(beside(0.0, 100, 4), beside(10.0, 100, 4))
    assert found.demand == pytest.approx(100.0)
    assert found.local_rate == pytest.approx(40.0 * PLANNED_SHARE)
    assert found.local_workers == 1
    assert measure(beside(0.0, 100, 40), beside(10.0, 100, 40)).local_rate == pytest.approx(100.0)


def test_the_busy_rate_is_that_of_worker_pods_once_they_work():
    alone = measure(beside(0.0, 100, 4), beside(10.0, 100, 4))
    assert alone.busy_rate == pytest.approx(10.0)
    assert alone.busy_rate_is_local
    found = measure(beside(0.0, 100, 4), beside(10.0, 100, 4, remote_rows=500))
    assert found.busy_rate == pytest.approx(20.0)
    assert not found.busy_rate_is_local
    assert found.local_rate == pytest.approx(40.0 * PLANNED_SHARE)
    assert found.streams == {"10.0.0.1": 0}


def test_an_idle_own_worker_counts_with_the_rate_of_the_others():
    before, after = beside(0.0, 0, 4), beside(10.0, 0, 4)
    idle = replace(
        after,
        consumers={"0": ConsumerCounters(rows=400, wall=10.0, batches=10, pod="p")},
        workers={**after.workers, "w": WorkerCounters("h:1", rows=400, busy=20.0)},
    )
    assert measure(before, idle).local_rate == pytest.approx(40.0)


def test_less_cpu_for_own_workers_is_a_change_of_load():
    window = RateWindow()
    for number in range(10):
        window = window.add(beside(10.0 * number, 100, 8))
    assert window.measurement is not None
    assert window.measurement.local_rate == pytest.approx(80.0 * PLANNED_SHARE)
    last = window.samples[-1].workers["own"]
    for number in range(1, 3):
        after = beside(90.0 + 10 * number, 100, 8)
        own = replace(after.workers["own"], permits=last.permits + 10.0 * number)
        window = window.add(replace(after, workers={**after.workers, "own": own}))
    assert window.measurement is not None
    assert window.measurement.local_rate == pytest.approx(10.0 * PLANNED_SHARE)


def test_the_rate_of_own_workers_is_kept_during_a_pause():
    window = RateWindow()
    for time in (0.0, 10.0):
        window = window.add(beside(time, 100, 4))
    paused = replace(
        window.samples[-1],
        time=20.0,
        consumers={"0": ConsumerCounters(rows=1000, wall=20.0, batches=10, pod="p")},
    )
    found = window.add(paused).measurement
    assert found is not None
    assert found.paused
    assert found.local_rate == pytest.approx(40.0 * PLANNED_SHARE)


@pytest.mark.slow
def test_the_window_keeps_fewer_samples_of_large_answers():
    large = {str(number): WorkerCounters() for number in range(10_000)}
    window = RateWindow()
    for time in range(0, 120, 4):
        window = window.add(DispatcherSample(float(time), workers=large))
        assert window.size <= MAX_KEPT
    # The first one for steady rates, the latest for changes of load.
    assert [one.time for one in window.samples] == [0.0, 108.0, 112.0, 116.0]


def test_the_window_keeps_all_samples_of_a_usual_answer():
    window = RateWindow()
    for time in range(0, 120, 4):
        window = window.add(sample(float(time), 100.0 * time))
    assert len(window.samples) == 30


RATES = st.floats(0.0, 1e6)
DEMANDS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), RATES), max_size=8)
CAPACITIES = st.dictionaries(st.sampled_from("abc"), RATES)


@given(DEMANDS, CAPACITIES)
def test_it_is_at_most_the_demand_and_the_capacity(demand, capacity):
    found = met_locally(demand, capacity)
    assert 0 <= found <= sum(rate for _, rate in demand) * (1 + 1e-9)
    assert found <= sum(capacity.values()) * (1 + 1e-9)


@given(DEMANDS, CAPACITIES, st.sampled_from("abc"), RATES)
def test_more_capacity_never_meets_less(demand, capacity, pod, more):
    larger = {**capacity, pod: capacity.get(pod, 0.0) + more}
    assert met_locally(demand, capacity) <= met_locally(demand, larger) * (1 + 1e-9)


@given(DEMANDS, CAPACITIES)
def test_trainers_without_own_workers_are_not_met(demand, capacity):
    others = [(pod, rate) for pod, rate in demand if pod in capacity]
    assert met_locally(demand, capacity) == pytest.approx(met_locally(others, capacity))


def test_the_spare_capacity_of_one_pod_does_not_meet_the_demand_of_another():
    assert met_locally([("a", 10.0), ("b", 100.0)], {"a": 1000.0}) == 10.0


def test_consumers_of_one_pod_share_its_worker():
    assert met_locally([("a", 60.0), ("a", 60.0)], {"a": 100.0}) == 100.0 * PLANNED_SHARE
