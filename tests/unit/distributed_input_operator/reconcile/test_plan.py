"""Laws of the planner: idempotent, converges at once, repairs what drifts, stays within bounds."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measured
from distributed_input_operator.objects.snapshot import Failure, Pod, Settings, Snapshot
from distributed_input_operator.reconcile.plan import Plan, plan, refusal, report
from tests.unit.distributed_input_operator.snapshots import NOW, after, resource, snapshot


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


workers = some(
    replicas=st.integers(0, 9),
    autoscaling=st.builds(
        lambda low, more: {"minReplicas": low, "maxReplicas": low + more},
        st.integers(1, 9),
        st.integers(0, 9),
    ),
    accelerator=st.sampled_from(
        [
            {"type": "nvidia"},
            {"type": "gke-nvidia", "product": "nvidia-l4", "count": 2},
            {"type": "gke-tpu", "product": "tpu-v5-lite-podslice", "topology": "2x2"},
        ]
    ),
    placement=st.sampled_from(["anywhere", "near-trainers", "dedicated"]),
    spot=st.booleans(),
    env=st.just([{"name": "BUCKET", "value": ""}]),
    resources=st.sampled_from([{"requests": {"cpu": "1000m"}}, {"limits": {"memory": "2Gi"}}]),
    podTemplate=st.sampled_from([{}, {"spec": {"hostNetwork": False, "dnsPolicy": "Default"}}]),
)
specs = some(
    suspend=st.booleans(),
    workers=workers,
    dispatcher=some(port=st.integers(1, 1023)),
    tfDataService=some(
        port=st.integers(7071, 9000),  # 7070 and 9090 are taken
        journal=st.just({"persistentVolumeClaim": {"claimName": "journal"}}),
        crossTrainerCache=st.just("1Gi"),
    ),
    dataset=st.sampled_from(
        [{}, {"entryPoint": "a:b"}, {"entryPoint": "a:b", "source": {"configMap": "code"}}]
    ),
)
measurements = st.none() | st.builds(
    Measured,
    consumers=st.integers(0, 9),
    demand=st.none() | st.floats(0, 1e6),
    busy_rate=st.none() | st.floats(0.1, 1e4),
    useful_workers=st.integers(0, 20),
)


@given(specs, measurements)
def test_once_applied_there_is_nothing_left_to_apply(spec, measured):
    young = replace(snapshot(**spec), measured=measured)
    first = plan(young, NOW)
    assert len(first.objects) == 8
    assert plan(after(young, first), NOW).objects == ()


@given(specs, st.data())
def test_whatever_drifts_is_repaired_and_nothing_else_is_written(spec, data):
    young = snapshot(**spec)
    settled = after(young, plan(young, NOW))
    objects = {key: copy.deepcopy(dict(one)) for key, one in settled.objects.items()}
    key = data.draw(st.sampled_from(sorted(objects)))
    if data.draw(st.booleans(), "deleted"):
        del objects[key]
    else:
        del objects[key]["metadata"]["ownerReferences"]
    made = plan(replace(settled, objects=objects), NOW)
    assert [(one["kind"], one["metadata"]["name"]) for one in made.objects] == [key]


@given(specs, measurements)
def test_the_number_of_workers_is_the_owners(spec, measured):
    made = plan(replace(snapshot(**spec), measured=measured), NOW)
    said = spec.get("workers", {})
    if spec.get("suspend"):
        assert made.desired == 0
    elif "autoscaling" in said:
        bounds = said["autoscaling"]
        assert bounds["minReplicas"] <= made.desired <= bounds["maxReplicas"]
    else:
        assert made.desired == said.get("replicas", 1)


@given(specs, measurements, st.floats(0, 1e5))
def test_a_report_once_written_is_not_written_again(spec, measured, later):
    young = replace(snapshot(**spec), measured=measured)
    made = plan(young, NOW)
    status = report(young, made, [], NOW)
    assert status is not None
    told = replace(young, status=Status.model_validate(status))
    settled = plan(told, NOW)
    if settled.desired == made.desired and settled.decision == made.decision:
        assert report(told, settled, [], NOW) is None
        if measured is None:
            assert report(told, plan(told, NOW + later), [], NOW + later) is None


def test_the_time_of_a_condition_moves_only_with_its_status():
    young = snapshot()
    made = plan(young, NOW)
    first = Status.model_validate(report(young, made, [], NOW))
    told = replace(young, status=first)
    refused = Failure("Refused", "no")
    second = Status.model_validate(report(told, made, [refused], NOW + 60))
    times = [{one.type: one.last_transition_time for one in s.conditions} for s in (first, second)]
    assert times[0]["Ready"] == times[1]["Ready"]
    assert times[1]["Applied"] > times[1]["Ready"]
    assert {one.type: one.reason for one in second.conditions}["Ready"] == "Refused"


def live(rate: float, seconds: float) -> Any:
    """Rates that are written so long after others were; None where nothing is."""
    reading = replace(snapshot(), measured=Measured(consumers=1, rows_per_second=100))
    first = Status.model_validate(report(reading, plan(reading, NOW), [], NOW))
    later = replace(reading, status=first, measured=Measured(consumers=1, rows_per_second=rate))
    status = report(later, plan(later, NOW), [], NOW + seconds)
    return status and status["live"]


def test_rates_alone_are_worth_a_write_every_30_s_and_only_when_two_digits_move():
    assert live(200, 29) is None
    assert live(200, 30)["rowsPerSecond"] == 200
    assert live(100.4, 3000) is None


def test_who_has_the_fewest_open_splits_goes_first():
    young = snapshot(workers={"replicas": 1})
    busy = Measured(consumers=1, streams={"10.0.0.1": 5, "10.0.0.2": 0, "10.0.0.3": 3})
    pods = tuple(
        Pod(f"w{n}", "worker", ip=f"10.0.0.{n}", ready=True, deletion_cost=cost)
        for n, cost in ((1, None), (2, -1000), (3, None))
    )
    deployment = {"spec": {"replicas": 3, "template": {"spec": {}}}}
    crowd = replace(
        young, pods=pods, measured=busy, objects={("Deployment", "digits-worker"): deployment}
    )
    assert plan(crowd, NOW).costs == (("w3", -1000),)  # w2 is marked already
    assert plan(replace(crowd, resource=resource(suspend=True)), NOW).costs == ()  # all go


def test_what_the_spec_no_longer_says_is_taken_back():
    before = snapshot(workers={"nodeSelector": {"disk": "fast"}})
    there = after(before, plan(before, NOW))
    made = plan(replace(there, resource=resource()), NOW)
    assert [(one["kind"], one["metadata"]["name"]) for one in made.objects] == [
        ("Deployment", "digits-worker")
    ]


def test_a_changed_dataset_or_code_replaces_the_workers_and_a_changed_number_does_not():
    def template(young: Snapshot) -> Any:
        found = plan(young, NOW).objects
        (one,) = [
            o
            for o in found
            if o["metadata"]["name"] == "digits-worker" and "apps" in o["apiVersion"]
        ]
        return one["spec"]["template"]

    dataset = {"entryPoint": "a:b"}
    before = template(snapshot(dataset=dataset))
    assert template(snapshot(dataset=dataset, workers={"replicas": 9})) == before
    assert template(snapshot(dataset={**dataset, "args": {"x": 1}})) != before
    assert template(replace(snapshot(dataset=dataset), code="other")) != before


NEWER = Settings("worker:2", "sidecar:2", "operators")


def images(made: Plan) -> dict[str, str]:
    """The image of each Deployment that is applied, by its name."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["image"]
        for one in made.objects
        if one["kind"] == "Deployment"
    }


def upgraded(**spec: Any) -> Snapshot:
    """An input that runs, under an operator with other default images."""
    young = snapshot(**spec)
    return replace(after(young, plan(young, NOW)), settings=NEWER)


@given(specs)
def test_other_default_images_alone_change_nothing_that_runs(spec):
    spec = {**spec, "suspend": False, "workers": {**spec.get("workers", {}), "replicas": 2}}
    assert plan(upgraded(**spec), NOW).objects == ()


def test_other_default_images_come_with_the_next_change_of_the_pods():
    before = upgraded(dataset={"entryPoint": "a:b"})
    more = replace(
        before, resource=resource(dataset={"entryPoint": "a:b"}, workers={"replicas": 5})
    )
    assert images(plan(more, NOW)) == {"digits-worker": "worker:1"}
    other = replace(before, resource=resource(dataset={"entryPoint": "a:c"}))
    assert images(plan(other, NOW)) == {"digits-worker": "worker:2"}
    assert plan(after(other, plan(other, NOW)), NOW).objects == ()


def test_what_does_not_run_gets_the_other_default_images_at_once():
    assert images(plan(upgraded(suspend=True), NOW)) == {
        "digits-dispatcher": "sidecar:2",
        "digits-worker": "worker:2",
    }


def test_an_image_that_the_input_no_longer_names_gives_way_to_the_present_default():
    before = upgraded(workers={"image": "mine:1"}, sidecar={"image": "mine:2"})
    assert images(plan(replace(before, resource=resource()), NOW)) == {
        "digits-dispatcher": "sidecar:2",
        "digits-worker": "worker:2",
    }


def test_an_image_that_someone_else_set_is_no_default_to_keep():
    before = upgraded()
    objects = copy.deepcopy(dict(before.objects))
    live: Any = objects["Deployment", "digits-dispatcher"]
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "theirs:1"
    made = plan(replace(before, objects=objects), NOW)
    assert images(made) == {"digits-dispatcher": "sidecar:2"}


def test_another_port_of_the_dispatcher_is_none_for_those_who_know_its_service():
    young = snapshot()
    there = after(young, plan(young, NOW))
    made = plan(replace(there, resource=resource(dispatcher={"port": 8000})), NOW)
    assert sorted((one["kind"], one["metadata"]["name"]) for one in made.objects) == [
        ("Deployment", "digits-dispatcher"),
        ("NetworkPolicy", "digits-distributed-input"),
    ]
    service: Any = there.objects["Service", "digits-dispatcher"]
    port = service["spec"]["ports"][0]
    assert (port["port"], port["targetPort"]) == (7070, "grpc")
    container = made.objects[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"][0] == {"name": "grpc", "containerPort": 8000}


def test_rows_are_for_the_inputs_own_trainers_unless_it_says_that_anyone_may_come():
    def ingress(**spec: Any) -> Any:
        made = plan(snapshot(**spec), NOW).objects
        (found,) = [one for one in made if one["kind"] == "NetworkPolicy"]
        return found["spec"]["ingress"]

    own, operator, _ = ingress()
    assert own["from"]
    (peer,) = operator["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "operators"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "operator"}
    anyone = ingress(networkPolicy=False)[0]
    assert anyone == {"ports": own["ports"]}


def test_images_are_pulled_as_the_operator_was_told():
    def pods(**spec: Any) -> list[Any]:
        told = replace(snapshot().settings, pull_policy="Always", pull_secrets=("registry",))
        made = plan(replace(snapshot(**spec), settings=told), NOW).objects
        found = [one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment"]
        assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in found)
        return [pod["containers"][0].get("imagePullPolicy") for pod in found]

    assert pods() == ["Always", "Always"]
    # Kubernetes knows better when to pull what a user named: by its tag.
    assert pods(workers={"image": "mine:latest"}, sidecar={"image": "other:1"}) == [None, None]


def test_a_refusal_is_written_once_and_keeps_what_is_known():
    before = {"workers": {"ready": 2}, "selector": "a=b"}
    first = refusal(before, 4, "spec.x: wrong", NOW)
    assert first is not None
    assert first["selector"] == "a=b"
    assert first["conditions"][0]["message"] == "spec.x: wrong"
    assert refusal(first, 4, "spec.x: wrong", NOW + 99) is None
