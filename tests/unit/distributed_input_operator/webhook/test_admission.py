"""The answers to AdmissionReviews, from an API server that may fail."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.webhook import admission
from distributed_input_operator.webhook.admission import Injector
from tests.unit.distributed_input_operator.injection.trainerpods import (
    job,
    jobset,
    jobset_pod,
    pod,
    replicated,
)

HEAD = {"apiVersion": "distributed-input.dev/v1alpha1", "kind": "DistributedInput"}


class Fake:
    """What the webhook asks of an API server: objects by (kind, name). It may raise `trouble`."""

    def __init__(self, trouble: ApiError | None = None, **specs: Any) -> None:
        self.objects: dict[tuple[str, str], Any] = {
            ("DistributedInput", name): {**HEAD, "metadata": {"name": name}, "spec": spec}
            for name, spec in specs.items()
        }
        self.trouble = trouble
        self.delay = 0.0

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        await asyncio.sleep(self.delay)
        if self.trouble:
            raise self.trouble
        assert namespace == "ml"
        return self.objects.get((kind.kind, name))

    async def metadata(self, kind: Kind, namespace: str | None) -> AsyncIterator[Any]:
        for _, name in self.objects:
            yield {"name": name}


def answer(of: Any, api: Fake) -> dict[str, Any]:
    request = {"uid": "7", "namespace": "ml", "object": of}
    made = asyncio.run(Injector(api, "sidecar:1").answer(request))  # type: ignore[arg-type]
    assert made["uid"] == "7"
    return made


def refusal(of: Any, api: Fake) -> tuple[int, str]:
    made = answer(of, api)
    assert not made["allowed"]
    assert "patch" not in made
    return made["status"]["code"], made["status"]["message"]


def test_a_pod_that_does_not_ask_passes_without_a_look():
    trouble = Fake(ApiError(500, "Broken", "broken"))
    assert answer({"metadata": {}, "spec": {}}, trouble) == {"uid": "7", "allowed": True}


def test_the_patch_adds_the_sidecar():
    made = answer(pod(hostNetwork=True), Fake(train={}))
    assert made["allowed"]
    assert made["patchType"] == "JSONPatch"
    changes = {one["path"]: one["value"] for one in json.loads(base64.b64decode(made["patch"]))}
    assert changes["/spec/initContainers"][0]["image"] == "sidecar:1"
    assert "ClusterFirstWithHostNet" in made["warnings"][0]


def test_owners_are_asked_for_index_and_count():
    api = Fake(train={})
    api.objects["Job", "fit"] = job(2)
    api.objects["JobSet", "fits"] = jobset(replicated("a", 2, 2))
    changes = json.loads(base64.b64decode(answer(jobset_pod("a", 1, 1), api)["patch"]))
    env = next(c["value"] for c in changes if c["path"] == "/spec/initContainers")[0]["env"]
    assert [one["value"] for one in env] == ["3", "4"]
    del api.objects["JobSet", "fits"]
    assert "JobSet fits, which runs this pod, is gone" in refusal(jobset_pod("a", 1, 1), api)[1]


def test_a_missing_input_is_refused_with_those_there_are():
    code, told = refusal(pod("trian"), Fake(train={}))
    assert code == 422
    assert "no DistributedInput 'trian' in namespace ml, there are train" in told
    assert "there is none" in refusal(pod(), Fake())[1]


@pytest.mark.parametrize(
    ("trouble", "remedy"),
    [
        (ApiError(0, "Unreachable", "GET x: no answer"), "try again"),
        (ApiError(429, "TooManyRequests", "GET x: slow down"), "try again"),
        (ApiError(403, "Forbidden", "GET x: forbidden"), "chart's role"),
    ],
)
def test_what_cannot_be_known_is_refused(trouble, remedy):
    code, told = refusal(pod(), Fake(trouble, train={}))
    assert code == 503
    assert "GET x" in told
    assert remedy in told


def test_an_api_server_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(admission, "SECONDS", 0.02)
    slow = Fake(train={})
    slow.delay = 60.0
    assert "within 0.02 s" in refusal(pod(), slow)[1]


def test_an_input_with_mistakes_is_refused_with_the_field():
    told = refusal(pod(), Fake(train={"sidecar": {"buffer": "lots"}}))[1]
    assert "DistributedInput train cannot be used: spec.sidecar.buffer" in told


def test_a_field_of_a_newer_definition_is_passed_over():
    assert answer(pod(), Fake(train={"colour": "blue"}))["allowed"]


def test_a_pod_that_cannot_be_placed_is_refused_with_the_remedy():
    code, told = refusal(pod(owner=("ReplicaSet", "fit")), Fake(train={}))
    assert code == 422
    assert names.CONSUMERS_ANNOTATION in told
