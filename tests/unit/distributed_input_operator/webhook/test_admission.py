"""Responses to AdmissionReviews, with an API server that can fail."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.webhook import admission
from distributed_input_operator.webhook.admission import Injector
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    job,
    jobset,
    jobset_pod,
    pod,
    replicated,
)

HEAD = {"apiVersion": "distributed-input.dev/v1alpha1", "kind": "DistributedInput"}


class FakeApi:
    """An API server with objects by (kind, name). It raises `error` if it is set."""

    def __init__(self, error: ApiError | None = None, **specs: Any) -> None:
        self.objects: dict[tuple[str, str], Any] = {
            ("DistributedInput", name): {**HEAD, "metadata": {"name": name}, "spec": spec}
            for name, spec in specs.items()
        }
        self.error = error
        self.delay = 0.0

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        assert namespace == "ml"
        return self.objects.get((kind.kind, name))


def respond(of: Any, api: FakeApi, operator_class: str = "") -> dict[str, Any]:
    request = {"uid": "7", "namespace": "ml", "object": of}
    settings = Settings("worker:1", "sidecar:1", operator_class=operator_class)
    made = asyncio.run(Injector(api, settings).respond(request))  # type: ignore[arg-type]
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


@pytest.mark.parametrize(
    ("spec", "status", "encrypted"),
    [
        ({}, {}, True),
        ({}, {"observedGeneration": -1}, True),
        ({}, {"conditions": [{"type": "Ready"}], "encryption": "all"}, True),
        ({}, {"conditions": [{"type": "Ready"}], "encryption": "none"}, False),
        ({}, {"conditions": [{"type": "Ready"}]}, False),
        ({"encryption": "all"}, {"conditions": [{"type": "Ready"}]}, True),
        ({"encryption": "none"}, {}, False),
    ],
)
def test_the_sidecar_gets_the_credentials_that_the_dispatcher_accepts(spec, status, encrypted):
    api = FakeApi(train=spec)
    api.objects["DistributedInput", "train"]["status"] = status
    changes = {
        one["path"]: one["value"]
        for one in json.loads(base64.b64decode(respond(pod(), api)["patch"]))
    }
    (volume,) = (one for one in changes["/spec/volumes"] if "projected" in one)
    secrets = [one["secret"]["name"] for one in volume["projected"]["sources"] if "secret" in one]
    assert secrets == ["train-distributed-input-tls" if encrypted else "train-distributed-input"]


def test_each_webhook_injects_the_inputs_of_its_class():
    api = FakeApi(train={"operatorClass": "canary"}, other={})
    made = respond(pod(), api)
    assert made["allowed"]
    assert "patch" not in made
    (warning,) = made["warnings"]
    assert "train: spec.operatorClass names the operator class canary" in warning
    assert "patch" in respond(pod(), api, "canary")
    code, message = refusal(pod("train,other"), api)
    assert code == 422
    assert "different operator classes" in message


def test_index_and_count_come_from_the_owners():
    api = FakeApi(train={"encryption": "none"})
    api.objects["Job", "fit"] = job(2)
    api.objects["JobSet", "fits"] = jobset(replicated("a", 2, 2))
    changes = json.loads(base64.b64decode(respond(jobset_pod("a", 1, 1), api)["patch"]))
    env = next(c["value"] for c in changes if c["path"] == "/spec/initContainers")[0]["env"]
    assert [one["value"] for one in env] == ["3", "4"]
    del api.objects["JobSet", "fits"]
    message = refusal(jobset_pod("a", 1, 1), api)[1]
    assert "JobSet fits, which owns this pod, does not exist any more" in message


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


def test_a_pod_is_refused_if_the_api_server_does_not_respond_in_time(monkeypatch):
    monkeypatch.setattr(admission, "DEADLINE_SECONDS", 0.02)
    slow = FakeApi(train={})
    slow.delay = 60.0
    assert "within 0.02 s" in refusal(pod(), slow)[1]


def test_the_refusal_for_an_invalid_input_has_the_field():
    message = refusal(pod(), FakeApi(train={"sidecar": {"buffer": "lots"}}))[1]
    assert "DistributedInput train is invalid: spec.sidecar.buffer" in message


def test_a_field_of_a_newer_definition_is_ignored():
    assert respond(pod(), FakeApi(train={"colour": "blue"}))["allowed"]


def test_the_refusal_for_a_pod_without_rank_has_the_remedy():
    code, message = refusal(pod(owner=("ReplicaSet", "fit")), FakeApi(train={}))
    assert code == 422
    assert names.CONSUMERS_ANNOTATION in message
