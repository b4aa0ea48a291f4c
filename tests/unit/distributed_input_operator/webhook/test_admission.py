"""Responses to AdmissionReviews, with an API server that can fail."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.objects.kind import Kind
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.webhook.admission import Injector, deadline_seconds
from tests.unit.distributed_input_operator.injection.controllers import TRAINERS, ray_job, train_job
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    job,
    jobset,
    jobset_job,
    jobset_pod,
    owner,
    pod,
    reference,
    replicated,
)

HEAD = {"apiVersion": "distributed-input.dev/v1beta1", "kind": "DistributedInput"}


class FakeApi:
    """An API server with objects by (API group, kind, name). It raises `error` if it is set."""

    def __init__(self, error: ApiError | None = None, **specs: Any) -> None:
        self.objects: dict[tuple[str, str, str], Any] = {}
        for name, spec in specs.items():
            self.put({**HEAD, "metadata": {"name": name}, "spec": spec})
        self.error = error
        self.delay = 0.0

    def put(self, *objects: Any) -> None:
        for one in objects:
            group = one["apiVersion"].rpartition("/")[0]
            self.objects[group, one["kind"], one["metadata"]["name"]] = one

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        assert namespace == "ml"
        return self.objects.get((kind.group, kind.kind, name))


def respond(
    of: Any, api: FakeApi, operator_class: str = "", seconds: float = 8.0
) -> dict[str, Any]:
    request = {"uid": "7", "namespace": "ml", "object": of}
    settings = Settings("worker:1", "sidecar:1", operator_class=operator_class)
    made = asyncio.run(Injector(api, settings).respond(request, seconds))  # type: ignore[arg-type]
    assert made["uid"] == "7"
    return made


def refusal(of: Any, api: FakeApi) -> tuple[int, str]:
    made = respond(of, api)
    assert not made["allowed"]
    assert "patch" not in made
    return made["status"]["code"], made["status"]["message"]


def test_a_pod_without_a_request_is_allowed_without_calls_to_the_api_server():
    failing = FakeApi(ApiError(500, "Broken", "broken"))
    assert respond({"metadata": {}, "spec": {}}, failing) == {"uid": "7", "allowed": True}


def test_the_patch_adds_the_sidecar():
    made = respond(pod(hostNetwork=True), FakeApi(train={}))
    assert made["allowed"]
    assert made["patchType"] == "JSONPatch"
    changes = {one["path"]: one["value"] for one in json.loads(base64.b64decode(made["patch"]))}
    assert changes["/spec/initContainers"][0]["image"] == "sidecar:1"
    assert "ClusterFirstWithHostNet" in made["warnings"][0]


def test_each_webhook_injects_the_inputs_of_its_class():
    api = FakeApi(train={"managedBy": "distributed-input.dev/canary"}, other={})
    made = respond(pod(), api)
    assert made["allowed"]
    assert "patch" not in made
    (warning,) = made["warnings"]
    assert "train: the inputs have spec.managedBy distributed-input.dev/canary" in warning
    assert "patch" in respond(pod(), api, "canary")
    code, message = refusal(pod("train,other"), api)
    assert code == 422
    assert "different operators" in message


def test_index_and_count_come_from_the_owners():
    api = FakeApi(train={"encryption": "None"})
    api.put(jobset_job(2), jobset(replicated("a", 2, 2)))
    changes = json.loads(base64.b64decode(respond(jobset_pod("a", 1, 1), api)["patch"]))
    env = next(c["value"] for c in changes if c["path"] == "/spec/initContainers")[0]["env"]
    assert [one["value"] for one in env] == ["3", "4"]
    del api.objects["jobset.x-k8s.io", "JobSet", "fits"]
    message = refusal(jobset_pod("a", 1, 1), api)[1]
    assert "JobSet fits, which owns this pod, does not exist any more" in message


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_owners_of_each_kind_are_read(kind):
    api = FakeApi(train={"encryption": "None"})
    trainers = TRAINERS[kind]()
    for _, owners in trainers:
        api.put(*owners)
    for index, (made, _) in enumerate(trainers):
        of, count = identity(respond(made, api))
        assert (of, count) == (str(index), str(len(trainers)))


@pytest.mark.parametrize("build", [train_job, ray_job])
def test_an_owner_that_creates_one_object_may_be_one_of_several(build):
    api = FakeApi(train={"encryption": "None"})
    made, owners = build(2, ("Sweep", "s"))[0]
    api.put(*owners)
    assert "belongs to Sweep s, which may create further trainers" in refusal(made, api)[1]


def test_a_version_that_the_api_server_lacks_is_an_unknown_kind():
    api = FakeApi(train={"encryption": "None"})
    message = refusal(pod(owner=("MPIJob", "fit", "kubeflow.org/v1")), api)[1]
    assert "from its owner MPIJob fit: set the annotations" in message
    message = refusal(pod(owner=("MPIJob", "fit", "kubeflow.org/v2beta1")), api)[1]
    assert "MPIJob fit, which owns this pod, does not exist any more" in message


COMPLETE = {names.CONSUMERS_ANNOTATION: "4", names.CONSUMER_INDEX_ANNOTATION: "3"}
OTHER_OWNERS = [
    ("Job", "fit", "example.com/v1"),
    ("StatefulSet", "fit", "apps.kruise.io/v1beta1"),
    ("JobSet", "fit", "example.com/v1"),
]


def identity(response: dict[str, Any]) -> list[str]:
    """Return the index, or the path of the field that has it, and the number of trainers."""
    changes = {one["path"]: one["value"] for one in json.loads(base64.b64decode(response["patch"]))}
    index, count = changes["/spec/initContainers"][-1]["env"]
    return [index.get("value") or index["valueFrom"]["fieldRef"]["fieldPath"], count["value"]]


@pytest.mark.parametrize("other", OTHER_OWNERS)
@pytest.mark.parametrize("namesake", [False, True])
def test_an_owner_of_another_group_is_not_confused_with_a_native_one(other, namesake):
    api = FakeApi(train={"encryption": "None"})
    if namesake:  # one that would make each pod trainer 0 of 1
        api.put(job(1, indexed=False), owner("StatefulSet", "fit", {"replicas": 1}))
    code, message = refusal(pod(owner=other), api)
    assert code == 422
    assert f"from its owner {other[0]} fit: set the annotations" in message
    assert identity(respond(pod(owner=other, annotations=COMPLETE), api)) == ["3", "4"]


def test_a_pod_gets_no_number_from_another_object_of_its_owners_name():
    api = FakeApi(train={"encryption": "None"})
    injector = Injector(api, Settings("worker:1", "sidecar:1"))  # type: ignore[arg-type]
    before, after = job(2), job(4)
    after["metadata"]["uid"] = "uid of the next fit"
    new = pod(owner=("Job", "fit"))
    new["metadata"]["ownerReferences"][0]["uid"] = after["metadata"]["uid"]

    async def scenario() -> list[dict[str, Any]]:
        """Create, delete and create the Job within the time that a read is cached."""
        found = []
        for present, of in ((before, pod(owner=("Job", "fit"))), (after, new), (before, new)):
            api.put(present)
            request = {"uid": "7", "namespace": "ml", "object": of}
            found.append(await injector.respond(request))
        return found

    first, second, third = asyncio.run(scenario())
    assert identity(first)[1] == "2"
    assert identity(second) == identity(third)
    assert identity(second)[1] == "4"
    message = refusal(new, api)[1]
    assert "Job fit, which owns this pod, does not exist any more" in message


def test_owners_that_own_each_other_end():
    one = job(2, above=("StatefulSet", "fits"))
    other = owner("StatefulSet", "fits", {"replicas": 2}, "Job", "fit")
    other["metadata"]["ownerReferences"] = [reference("Job", "fit")]
    api = FakeApi(train={})
    api.put(one, other)
    trainer = pod(owner=("Job", "fit"), annotations={names.CONSUMERS_ANNOTATION: "2"})
    assert respond(trainer, api)["allowed"]
    assert "trainer index and count" in refusal(pod(owner=("StatefulSet", "fits")), api)[1]


def test_the_refusal_for_a_missing_input_has_no_names_of_others():
    code, message = refusal(pod("trian"), FakeApi(train={}))
    assert code == 422
    assert "no DistributedInput 'trian' in namespace ml: apply it first" in message
    assert "train" not in message


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ApiError(0, "Unreachable", "GET x: no answer"), "try again"),
        (ApiError(429, "TooManyRequests", "GET x: slow down"), "try again"),
        (ApiError(403, "Forbidden", "GET x: forbidden"), "chart's role"),
    ],
)
def test_a_pod_is_refused_if_the_api_server_returns_an_error(error, remedy):
    code, message = refusal(pod(), FakeApi(error, train={}))
    assert code == 503
    assert "GET x" in message
    assert remedy in message


def test_a_pod_is_refused_if_the_api_server_does_not_respond_in_time():
    slow = FakeApi(train={})
    slow.delay = 60.0
    made = respond(pod(), slow, seconds=0.02)
    assert "within 0.02 s" in made["status"]["message"]


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("30s", 24), ("5s", 4), ("1s", 0.8), (None, 8), ("soon", 8)]
)
def test_the_response_comes_before_the_api_server_stops_waiting(timeout, seconds):
    assert deadline_seconds(timeout) == pytest.approx(seconds)


def test_the_refusal_for_an_invalid_input_has_the_field():
    message = refusal(pod(), FakeApi(train={"sidecar": {"buffer": "lots"}}))[1]
    assert "DistributedInput train is invalid: spec.sidecar.buffer" in message


def test_a_field_of_a_newer_definition_is_ignored():
    assert respond(pod(), FakeApi(train={"colour": "blue"}))["allowed"]


def test_the_refusal_for_a_pod_without_rank_has_the_remedy():
    code, message = refusal(pod(owner=("ReplicaSet", "fit")), FakeApi(train={}))
    assert code == 422
    assert names.CONSUMERS_ANNOTATION in message
