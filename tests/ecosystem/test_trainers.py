"""Controllers of trainers create the documented pods, and our webhook gives each its rank.

The expected rank is what the controller itself gives the pod: for the processes of the training, or
in the order of their host names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from testing.ecosystem.controllers import create, when_served
from testing.ecosystem.trainers import runtime
from testing.operator.documentation import documented_manifest
from testing.operator.processes import manifest
from testing.operator.webhooks import Webhook, consumer_identity, find_sidecar

Json = dict[str, Any]
Rank = Callable[[Webhook, Json], int]
_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"


def _node_rank(_: Webhook, pod: Json) -> int:
    (container, *_) = pod["spec"]["containers"]
    (found,) = (one for one in container["env"] if one["name"] == "PET_NODE_RANK")
    if "value" in found:
        return int(found["value"])
    path = found["valueFrom"]["fieldRef"]["fieldPath"]
    key = path.removeprefix("metadata.annotations['").removesuffix("']")
    return int(pod["metadata"]["annotations"][key])


def _line_of_hostfile(hook: Webhook, pod: Json) -> int:
    job = pod["metadata"]["labels"]["training.kubeflow.org/job-name"]
    hostfile = hook.cluster.get("ConfigMap", f"{job}-config")
    assert hostfile
    lines = hostfile["data"]["hostfile"].splitlines()
    hosts = [line.partition(".")[0] for line in lines]
    return hosts.index(pod["metadata"]["name"])


def _index_in_groups(_: Webhook, pod: Json) -> int:
    labels = pod["metadata"]["labels"]
    prefix = "leaderworkerset.sigs.k8s.io/"
    (size,) = {one["value"] for one in pod["spec"]["containers"][0]["env"]
               if one["name"] == "LWS_GROUP_SIZE"}  # fmt: skip
    return int(labels[f"{prefix}group-index"]) * int(size) + int(labels[f"{prefix}worker-index"])


def _ray_replica(_: Webhook, pod: Json) -> int:
    return int(pod["metadata"]["labels"]["ray.io/worker-group-replica-index"])


@dataclass(frozen=True)
class Case:
    """A kind of docs/controllers.md.

    Attributes:
        controller: the fixture that runs its controller.
        label: of the trainer pods.
        rank: returns the rank that the controller gives a pod.
        pods: trainers of the example.
    """

    controller: str
    label: str
    rank: Rank
    pods: int = 4


CASES = {
    "PyTorchJob": Case("pytorch", "training.kubeflow.org/job-name=pytorchjob", _node_rank),
    "MPIJob": Case("mpi", "training.kubeflow.org/job-role=worker", _line_of_hostfile),
    "LeaderWorkerSet": Case(
        "lws", "leaderworkerset.sigs.k8s.io/name=leaderworkerset", _index_in_groups, 6
    ),
    "RayJob": Case("kuberay", "ray.io/group=trainers", _ray_replica),
    "TrainJob": Case("trainer", "jobset.sigs.k8s.io/replicatedjob-name=node", _node_rank),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_pods_of_a_controller_get_sidecars_with_its_ranks(
    hook: Webhook, kind: str, request: pytest.FixtureRequest
) -> None:
    case = CASES[kind]
    request.getfixturevalue(case.controller)
    if hook.cluster.get("DistributedInput", "train") is None:
        hook.cluster.create(manifest("train", workers={"replicas": 0}))
    if kind == "TrainJob":
        create(hook.cluster, _RUNTIMES, runtime("torch-distributed"))
    body = documented_manifest(kind, "controllers.md")
    body["metadata"]["name"] = kind.lower()  # some controllers give pods equal names
    when_served(lambda: hook.create(body))
    pods = hook.wait_for_pods(case.label, case.pods)
    found = {one["metadata"]["name"]: consumer_identity(one, find_sidecar(one)) for one in pods}
    expected = {one["metadata"]["name"]: (case.rank(hook, one), case.pods) for one in pods}
    assert found == expected
    assert sorted(found.values()) == [(index, case.pods) for index in range(case.pods)]
