"""The status of an input: written when it changes, and it explains what limits the input.

This module is long because each kind of change has its own rule for when it is written.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import timestamps
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.autoscaling.rates import Measurement, SkippedRecords
from distributed_input_operator.budget.claim import Grant
from distributed_input_operator.objects.snapshot import Failure, Snapshot
from distributed_input_operator.reconcile.rollout import DEADLINE
from distributed_input_operator.reconcile.status import input_status, invalid_status, round_rate
from testing.operator.gitops import CURRENT, FAILED, IN_PROGRESS, argocd_health, kstatus
from tests.unit.distributed_input_operator.objects.builders import from_config_map
from tests.unit.distributed_input_operator.reconcile.strategies import measurements, specs
from tests.unit.distributed_input_operator.snapshots import (
    NOW,
    ROLLED_OUT,
    after,
    plan,
    pods_status,
    snapshot,
    with_deployments,
)

MESSAGE = "3 of 9 requested workers: budget research is used up; team/b loses 41 % more per worker"


FAILURE = Failure("Refused", "no")
RETRIED = Failure("Conflict", "later", passing=True)


def written(found, planned, now, failures=()):
    """Return the status, which must be worth a write."""
    status = input_status(found, planned, failures, now)
    assert status is not None
    return status


def condition(status, kind):
    return next(one for one in status["conditions"] if one["type"] == kind)


def limited(found):
    """Return the status of an input that gets three workers."""
    return written(found, plan(found, NOW, Grant(3, 3, "research", MESSAGE)), NOW)


@given(specs, measurements, st.floats(0, 1e5))
def test_a_written_status_is_not_written_again(spec, measured, later):
    new = replace(snapshot(**spec), measured=measured)
    planned = plan(new)
    status = input_status(new, planned, [], NOW)
    assert status is not None
    found = replace(new, status=Status.model_validate(status))
    settled = plan(found)
    if settled.desired == planned.desired and settled.decision == planned.decision:
        assert input_status(found, settled, [], NOW) is None
        if measured is None:
            assert input_status(found, plan(found, NOW + later), [], NOW + later) is None


def test_the_time_of_a_condition_moves_only_with_its_status():
    new = snapshot()
    planned = plan(new)
    first = Status.model_validate(input_status(new, planned, [], NOW))
    found = replace(new, status=first)
    second = Status.model_validate(input_status(found, planned, [FAILURE], NOW + 60))
    times = [{one.type: one.last_transition_time for one in s.conditions} for s in (first, second)]
    assert times[0]["Ready"] == times[1]["Ready"]
    assert times[1]["Applied"] > times[1]["Ready"]
    assert {one.type: one.reason for one in second.conditions}["Ready"] == "Refused"


def test_the_generation_of_status_and_conditions_is_the_one_that_was_applied():
    new = snapshot()
    for failures, generation in (([RETRIED], -1), ([], 3)):
        status = input_status(new, plan(new), failures, NOW)
        assert status is not None
        found = {one["observedGeneration"] for one in status["conditions"]}
        assert status["observedGeneration"] == generation
        assert found == {max(generation, 0)}, "a condition has no negative generation"


def test_the_status_explains_a_grant_that_is_smaller_than_the_request():
    status = limited(snapshot(workers={"replicas": 9}))
    assert (status["workers"]["desired"], status["workers"]["requested"]) == (3, 9)
    limit = condition(status, "ScalingLimited")
    assert (limit["reason"], limit["message"]) == ("BudgetSpent", MESSAGE)


def test_a_message_that_only_names_another_rival_is_not_written():
    found = snapshot(workers={"replicas": 9})
    status = limited(found)
    found = replace(found, status=Status.model_validate(status))
    other = MESSAGE.replace("team/b loses 41", "team/c loses 43")
    planned = plan(found, NOW, Grant(3, 3, "research", other))
    after_rival = input_status(found, planned, [], NOW + 1) or status
    assert condition(after_rival, "ScalingLimited")["message"] == MESSAGE
    fewer = other.replace("3 of 9", "2 of 9")
    planned = plan(found, NOW, Grant(2, 2, "research", fewer))
    after_change = written(found, planned, NOW + 1)
    assert condition(after_change, "ScalingLimited")["message"] == fewer


@pytest.mark.parametrize(("consumers", "ready"), [(0, "Idle"), (1, "DispatcherStarting")])
def test_an_idle_input_is_ready_for_its_first_consumer(consumers, ready):
    found = snapshot(workers={"autoscaling": {"maxReplicas": 9, "idleTTLSeconds": 60}})
    found = replace(found, measured=Measurement(consumers=0))
    first = written(found, plan(found), NOW)
    assert first["autoscaling"]["idleSince"]
    found = replace(
        found, status=Status.model_validate(first), measured=Measurement(consumers=consumers)
    )
    objects = dict(after(found, plan(found)).objects)
    place = ("Deployment", "digits-dispatcher")
    objects[place] = {**objects[place], "status": {"availableReplicas": 1 - consumers}}
    found = replace(found, objects=objects)
    planned = plan(found, NOW + 61)
    assert planned.desired == (0 if consumers == 0 else 1)
    summary = condition(written(found, planned, NOW + 61), "Ready")
    assert summary["reason"] == ready
    assert summary["status"] == ("True" if ready == "Idle" else "False")


@given(
    st.builds(
        pods_status,
        st.integers(0, 2),
        updated=st.integers(0, 2),
        older=st.integers(0, 1),
        reason=st.sampled_from([ROLLED_OUT, "ReplicaSetUpdated", DEADLINE]),
    ),
    st.lists(st.sampled_from([FAILURE, RETRIED, Failure("CodeMissing", "no ConfigMap")])),
    st.sampled_from([{}, {"suspend": True}, {"workers": {"replicas": 2}}]),
    st.sampled_from([-1, 2, 3]),
    st.booleans(),
)
def test_flux_and_argo_cd_agree_and_never_see_an_incomplete_input_as_ready(
    worker, failures, spec, generation, seen
):
    new = snapshot(**spec)
    found = with_deployments(
        after(new, plan(new)),
        dispatcher=pods_status(1),
        worker={**worker, "observedGeneration": 1 if seen else 0},
    )
    found.objects["Deployment", "digits-worker"]["metadata"]["generation"] = 1
    found = replace(found, status=Status.model_validate({"observedGeneration": generation}))
    status = written(found, plan(found), NOW, failures)
    obj = {"metadata": {"generation": 3}, "status": status}
    health = (kstatus(obj), argocd_health(obj)[0])
    assert health in {
        (CURRENT, "Healthy"),
        (IN_PROGRESS, "Progressing"),
        (IN_PROGRESS, "Suspended"),
        (FAILED, "Degraded"),
    }
    summary = [one for one in status["conditions"][:3] if one["status"] == "True"]
    assert len(summary) <= 1
    if health[0] == CURRENT:
        assert (seen, worker["replicas"]) == (True, worker["updatedReplicas"])
        assert worker["availableReplicas"] >= spec.get("workers", {"replicas": 1})["replicas"]
        assert all(one is RETRIED for one in failures)


def test_measurements_end_when_an_input_is_suspended():
    scaling = {"workers": {"autoscaling": {"maxReplicas": 9}}}
    reading = replace(snapshot(**scaling), measured=Measurement(consumers=2, rows_per_second=100))
    before = written(reading, plan(reading), NOW)
    assert before["trainers"]["rowsPerSecond"] == 100
    suspended = snapshot(suspend=True, **scaling)
    # The dispatcher may still answer while its pod terminates.
    for measured in (None, Measurement(consumers=2, rows_per_second=100)):
        found = replace(suspended, status=Status.model_validate(before), measured=measured)
        status = written(found, plan(found, NOW + 1), NOW + 1)
        assert "trainers" not in status
        assert "autoscaling" not in status
        assert status["workers"] == {
            "desired": 0,
            "requested": 0,
            "replicas": 0,
            "ready": 0,
            "summary": "0/0",
        }


def test_an_invalid_spec_is_reported_once_and_the_pods_are_still_counted():
    before = {"workers": {"desired": 2, "ready": 2, "replicas": 2}, "selector": "a=b"}
    live = {"status": {"replicas": 2, "readyReplicas": 1}}
    first = invalid_status(before, 4, "spec.x: wrong", live, NOW)
    assert first is not None
    assert first["selector"] == "a=b"
    assert first["workers"] == {"desired": 2, "ready": 1, "replicas": 2, "summary": "1/2"}
    found = [(one["type"], one["status"], one["message"]) for one in first["conditions"]]
    assert found == [
        ("Ready", "False", "spec.x: wrong"),
        ("Reconciling", "False", "spec.x: wrong"),
        ("Stalled", "True", "spec.x: wrong"),
    ]
    assert invalid_status(first, 4, "spec.x: wrong", live, NOW + 99) is None
    gone = invalid_status(first, 4, "spec.x: wrong", {}, NOW + 99)
    assert gone is not None
    assert gone["workers"]["summary"] == "0/2"


def test_the_status_has_the_address_of_the_tf_data_service_only_if_the_input_has_one():
    found = snapshot(tfDataService={})
    status = written(found, plan(found), NOW)
    assert status["tfDataService"] == {"address": "grpc://digits-dispatcher:7080"}
    plain = snapshot()
    assert "tfDataService" not in written(plain, plan(plain), NOW)


RECONCILE_SECONDS = 5


def written_while(before: Snapshot, needs: list[float]) -> list[tuple[float, dict[str, Any]]]:
    """Return each written status and its time. `needs` has the workers needed at each time."""
    written, now = [], NOW
    for need in needs:
        now += RECONCILE_SECONDS
        measured = Measurement(consumers=2, demand=100 * need, busy_rate=100, rows_per_second=need)
        found = replace(before, measured=measured)
        planned = plan(found, now)
        if (status := input_status(found, planned, [], now)) is not None:
            written.append((now, status))
            before = replace(before, status=Status.model_validate(status))
        assert planned.decision
        before = replace(after(before, planned), scaled=planned.decision.state)
    return written


def scaled(**autoscaling: int) -> Snapshot:
    """Return an input that runs."""
    new = snapshot(workers={"autoscaling": autoscaling})
    return after(new, plan(new, NOW))


@pytest.mark.parametrize("low", [1.2, 3.2])
@pytest.mark.parametrize("most", [4, 9])
@pytest.mark.parametrize("seconds", [30.0, 200.0])
def test_a_need_that_keeps_changing_is_written_at_an_interval(low, most, seconds):
    before = scaled(minReplicas=1, maxReplicas=most, stabilizationWindowSeconds=60)
    before = replace(before, live_seconds=seconds)
    needs = [9.0] * 20 + [4.4, low] * 200
    written = written_while(before, needs)
    settled = [now for now, status in written if now > NOW + 30 * RECONCILE_SECONDS]
    gaps = [b - a for a, b in itertools.pairwise(settled)]
    assert len(settled) > 5
    assert min(gaps) >= 30  # Also with many inputs: workers may be removed soon.


def test_replays_that_differ_and_the_read_amplification_are_in_the_status():
    before = scaled(minReplicas=1, maxReplicas=9)
    measured = Measurement(consumers=2, mismatches=3, amplification=8)
    status = input_status(replace(before, measured=measured), plan(before, NOW), [], NOW)
    assert status is not None
    assert status["trainers"]["replayMismatches"] == 3
    assert status["trainers"]["readAmplification"] == 8


def test_a_new_number_of_workers_is_written_at_once():
    before = scaled(minReplicas=1, maxReplicas=9)
    written = written_while(before, [2.0, 2.0, 6.0])
    assert [now - NOW for now, _ in written] == [5, 15]
    assert written[-1][1]["workers"]["desired"] == 6


def test_autoscaling_keeps_its_state_between_two_writes():
    """Workers stay for a whole window after they were last needed, even if that was not written."""
    window = 60
    before = scaled(minReplicas=1, maxReplicas=9, stabilizationWindowSeconds=window)
    needs = [5.0] * 4 + [2.0] * 8 + [4.9] + [2.0] * 40
    written = written_while(before, needs)
    last_needed = NOW + 13 * RECONCILE_SECONDS
    fewer = [now for now, status in written if status["workers"]["desired"] < 5]
    assert fewer
    assert fewer[0] >= last_needed + window


def test_the_status_has_the_time_of_its_write():
    before = scaled(minReplicas=1, maxReplicas=9)
    for now, status in written_while(before, [2.0] * 3 + [2.5, 2.4, 2.3] * 20):
        assert timestamps.to_seconds(status["trainers"]["observedAt"]) == now


BEFORE = Measurement(consumers=1, rows_per_second=100, demand=100, busy_rate=100, mismatches=2)


def status_later(seconds: float, every: float, found: Snapshot, **change: Any) -> Any:
    """Return the status written `seconds` after that of BEFORE. None: it is not written.

    `every` is the interval of the input's writes.
    """
    first = replace(found, measured=BEFORE, live_seconds=every)
    written = Status.model_validate(input_status(first, plan(first), [], NOW))
    later = replace(first, status=written, measured=replace(BEFORE, **change))
    return input_status(later, plan(later, NOW + seconds), [], NOW + seconds)


def live(rate: float, seconds: float, every: float = 30.0) -> Any:
    """Return the rates written `seconds` after others. None: they are not written."""
    status = status_later(seconds, every, snapshot(), rows_per_second=rate)
    return status and status["trainers"]


def test_rates_alone_are_written_every_30_s_and_only_if_two_digits_change():
    assert live(200, 29) is None
    assert live(200, 30)["rowsPerSecond"] == 200
    assert live(100.4, 3000) is None


def test_rates_of_many_inputs_are_written_less_often():
    assert live(200, 199, every=200.0) is None
    assert live(200, 200, every=200.0)["rowsPerSecond"] == 200


def test_the_first_trainer_and_the_end_of_the_last_one_are_written_at_once():
    gone = status_later(1, 200.0, snapshot(), consumers=0)
    assert "trainers" not in gone
    new = replace(snapshot(), status=Status.model_validate(gone), measured=BEFORE)
    status = input_status(replace(new, live_seconds=200.0), plan(new), [], NOW + 2)
    assert status is not None
    assert status["trainers"]["reading"] == 1
    assert status_later(1, 200.0, snapshot(), consumers=2) is None


def test_more_replays_that_differ_are_written_at_once():
    assert status_later(1, 200.0, snapshot(), mismatches=3)["trainers"]["replayMismatches"] == 3
    assert status_later(1, 200.0, snapshot(), mismatches=1) is None  # Other sidecars.


def skipped_later(seconds: float, before: int, after: int) -> Any:
    """Return the skipped records written `seconds` after others. None: they are not written."""
    first = replace(BEFORE, skipped=SkippedRecords(before, f"record {before}"))
    found = replace(snapshot(), measured=first, live_seconds=30.0)
    written = Status.model_validate(input_status(found, plan(found), [], NOW))
    later = replace(first, skipped=SkippedRecords(after, f"record {after}"))
    found = replace(found, status=written, measured=later)
    status = input_status(found, plan(found, NOW + seconds), [], NOW + seconds)
    return status and status["badRecords"]


def test_the_first_skipped_record_is_written_at_once_and_others_every_30_s():
    assert skipped_later(1, 0, 1) == {"skipped": 1, "last": "record 1"}
    assert skipped_later(29, 1, 5) is None
    assert skipped_later(30, 1, 5) == {"skipped": 5, "last": "record 5"}


def test_skipped_records_stay_while_the_dispatcher_does_not_respond():
    first = replace(snapshot(), measured=Measurement(skipped=SkippedRecords(2, "record 2")))
    status = input_status(first, plan(first), [], NOW)
    assert status is not None
    before = replace(snapshot(), status=Status.model_validate(status))
    status = input_status(replace(before, live_seconds=0), plan(before), [FAILURE], NOW + 60)
    assert status is not None
    assert status["badRecords"] == {"skipped": 2, "last": "record 2"}
    empty = input_status(replace(before, measured=Measurement()), plan(before), [], NOW + 90)
    assert empty is not None
    assert "badRecords" not in empty  # Another dispatcher.


def test_another_limit_of_autoscaling_is_written_within_30_s():
    """It may change with each measurement."""
    found = scaled(minReplicas=1, maxReplicas=1)
    assert status_later(29, 200.0, found, demand=400) is None
    status = status_later(30, 200.0, found, demand=400)
    reasons = [one["reason"] for one in status["conditions"] if one["type"] == "ScalingLimited"]
    assert reasons == ["MaxReplicas"]


@pytest.mark.parametrize(("before", "after"), [(500, 200), (200, 500)])
def test_what_removes_workers_is_written_every_30_s(before, after):
    """A new leader continues with the written values."""
    found = replace(scaled(minReplicas=1, maxReplicas=9), scaled=AutoscalingState(5))
    first = replace(found, measured=replace(BEFORE, demand=before), live_seconds=200.0)
    written = Status.model_validate(input_status(first, plan(first), [], NOW))
    falls = bool(written.autoscaling and written.autoscaling.fewer_since)
    assert falls is (before < after)
    later = replace(first, status=written, measured=replace(BEFORE, demand=after))
    for seconds in (29, 30):
        status = input_status(later, plan(later, NOW + seconds), [], NOW + seconds)
        assert (status is not None) is (seconds == 30)


@pytest.mark.parametrize(
    ("rate", "rounded"), [(0.2, 0), (0.7, 1), (7.4, 7), (74.4, 74), (1234, 1200), (98765, 99000)]
)
def test_rates_are_rounded_to_two_digits(rate, rounded):
    assert round_rate(rate) == rounded


def test_a_split_without_progress_is_written_at_once():
    before = scaled(minReplicas=1, maxReplicas=1)
    first = replace(before, measured=Measurement(consumers=1))
    status = input_status(first, plan(first, NOW), [], NOW)
    assert status is not None
    text = "split 3 of dataset data:rows, worker h:1"
    stalled = replace(
        first,
        status=Status.model_validate(status),
        measured=Measurement(consumers=1, stalled=text),
    )
    written = input_status(stalled, plan(stalled, NOW + 1), [], NOW + 1)
    assert written is not None
    assert written["trainers"]["stalledSplit"] == text


def test_the_first_rates_are_written_within_30_s():
    """A window with one sample has none, but the trainers are written at once."""
    for before, seconds, written in ((0.0, 29, False), (0.0, 30, True), (100.0, 30, False)):
        first = replace(snapshot(), measured=replace(BEFORE, rows_per_second=before))
        first = replace(first, live_seconds=200.0)
        status = Status.model_validate(input_status(first, plan(first), [], NOW))
        later = replace(first, status=status, measured=replace(BEFORE, rows_per_second=200))
        now = NOW + seconds
        assert (input_status(later, plan(later, now), [], now) is not None) is written


READ = Measurement(consumers=2, stall=0.5, rows_per_second=100)


def test_an_input_without_rates_is_reconciled_soon():
    """Its first rates are written then."""
    found = replace(snapshot(workers={"replicas": 2}), live_seconds=200.0)
    one_sample = replace(found, measured=replace(READ, rows_per_second=0))
    assert plan(one_sample, NOW).interval == 30.0
    status = Status.model_validate(input_status(one_sample, plan(one_sample), [], NOW))
    assert plan(replace(found, status=status, measured=READ), NOW).interval == 30.0
    assert plan(replace(found, measured=READ), NOW).interval == 120.0


IN_IMAGE = {"type": "EntryPoint", "entryPoint": {"function": "digits:dataset_fn"}}
FEWER = replace(READ, demand=200, busy_rate=100)


@pytest.mark.parametrize(
    ("workers", "dataset", "interval"),
    [
        ({"replicas": 2}, IN_IMAGE, 120.0),
        ({"autoscaling": {"maxReplicas": 4}}, IN_IMAGE, 30.0),
        ({"replicas": 2}, from_config_map("code"), 30.0),
    ],
)
def test_an_input_that_looks_measure_is_reconciled_less_often(workers, dataset, interval):
    found = snapshot(workers=workers, dataset=dataset)
    assert plan(replace(found, measured=READ, live_seconds=200.0), NOW).interval == interval
    assert plan(replace(found, measured=READ), NOW).interval == 30.0


@pytest.mark.parametrize(
    ("lowest", "desired", "measured", "interval"),
    [
        (1, 2, FEWER, 30.0),
        (1, 4, FEWER, 5.0),
        (1, 4, replace(FEWER, stall=0.0), 10.0),
        (0, 0, READ, 5.0),
        (1, 1, READ, 30.0),
    ],
)
def test_autoscaling_that_waits_is_reconciled_with_each_look(lowest, desired, measured, interval):
    """Only a reconciliation records what was needed in the time, and when that time is over."""
    scaling = {"minReplicas": lowest, "maxReplicas": 9}
    found = snapshot(workers={"autoscaling": scaling, "local": {"cpus": 2, "memory": "1Gi"}})
    found = replace(found, scaled=AutoscalingState(desired), measured=measured)
    assert plan(replace(found, live_seconds=200.0), NOW).interval == interval
