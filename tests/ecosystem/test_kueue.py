"""Kueue's controller admits the pods of an input and its trainers as one group, or none of them."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from distributed_input.api import names
from testing.ecosystem.controllers import create
from testing.operator.cluster import Cluster, Json
from testing.operator.documentation import documented_manifest
from testing.operator.processes import eventually
from testing.operator.webhooks import Webhook, find_sidecar

_API = "kueue.x-k8s.io/v1beta2"
_ROOT = f"/apis/{_API}"
_GATE = "kueue.x-k8s.io/admission"
_TOO_FEW_CPUS = 4
"""Enough for the dispatcher and the workers, or for the trainers."""
_ENOUGH_CPUS = 5
_PODS = 1 + 2 + 2
_USED_CPU = "4600m"
"""Dispatcher 100m, two workers 1 each, two trainers 1 each, and 250m for the sidecar of each."""

_LONG = 150.0
"""Several programs take turns in replacing a worker: it took up to 20 s."""


class Group:
    """An input with two workers and two trainers, as a group of a queue of its own."""

    def __init__(self, cluster: Cluster, cpus: int) -> None:
        self.cluster = cluster
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        meta = {"name": self.name}
        flavor = {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": meta}
        create(cluster, f"{_ROOT}/resourceflavors", flavor)
        quotas = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "1Ti"}]
        resources = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": self.name, "resources": quotas}],
        }
        spec = {"namespaceSelector": {}, "resourceGroups": [resources]}
        queue = {"apiVersion": _API, "kind": "ClusterQueue", "metadata": meta, "spec": spec}
        create(cluster, f"{_ROOT}/clusterqueues", queue)
        local = {"apiVersion": _API, "kind": "LocalQueue", "metadata": meta}
        path = f"{_ROOT}/namespaces/{cluster.namespace}/localqueues"
        create(cluster, path, {**local, "spec": {"clusterQueue": self.name}})

    def documented(self, kind: str) -> Json:
        """Return the documented manifest, for this group."""
        text = json.dumps(documented_manifest(kind, "ecosystem.md"))
        for name in ("team", "run-1", "digits"):
            text = text.replace(f'"{name}"', f'"{self.name}"')
        body: Json = json.loads(text)
        body["metadata"]["name"] = self.name
        return body

    def create_input(self) -> None:
        """Create the input, which has the name of the group."""
        self.cluster.create(self.documented("DistributedInput"))
        eventually(lambda: self.gated() == [True] * 3)

    def create_trainers(self, kind: str) -> None:
        """Create the Job, or a JobSet with this Job."""
        body = self.documented("Job")
        path = f"/apis/batch/v1/namespaces/{self.cluster.namespace}/jobs"
        if kind == "JobSet":
            jobs = [{"name": "trainer", "replicas": 1, "template": {"spec": body["spec"]}}]
            api = "jobset.x-k8s.io/v1alpha2"
            meta = {"name": self.name}
            spec = {"replicatedJobs": jobs}
            body = {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}
            path = f"/apis/{api}/namespaces/{self.cluster.namespace}/jobsets"
        create(self.cluster, path, body)

    def pods(self) -> list[Json]:
        found = self.cluster.list("Pod", f"{names.POD_GROUP_LABEL}={self.name}")
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def trainers(self) -> list[Json]:
        return [one for one in self.pods() if names.INJECT_LABEL in one["metadata"]["labels"]]

    def gated(self) -> list[bool]:
        """Return of each pod whether Kueue holds it back."""
        gates = [one["spec"].get("schedulingGates", ()) for one in self.pods()]
        return [_GATE in [gate["name"] for gate in some] for some in gates]

    def workloads(self) -> list[Json]:
        """Return what Kueue admits or not from the group's queue."""
        path = f"{_ROOT}/namespaces/{self.cluster.namespace}/workloads"
        found = self.cluster.call("GET", path)["items"]
        return [one for one in found if one["spec"].get("queueName") == self.name]

    def condition(self, kind: str) -> str:
        """Return the status of a condition of the only Workload."""
        (one,) = self.workloads() or [{}]
        conditions = one.get("status", {}).get("conditions", ())
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def used_cpu(self) -> str:
        """Return the CPUs that count against the quota."""
        queue = self.cluster.call("GET", f"{_ROOT}/clusterqueues/{self.name}")
        (flavor,) = queue.get("status", {}).get("flavorsUsage", [{"resources": []}])
        return next((one["total"] for one in flavor["resources"] if one["name"] == "cpu"), "")

    def set_quota(self, cpus: int) -> None:
        path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
        change = [{"op": "replace", "path": path, "value": cpus}]
        url = f"{_ROOT}/clusterqueues/{self.name}"
        self.cluster.call("PATCH", url, change, "application/json-patch+json")


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_an_input_and_its_trainers_are_admitted_together(hook: Webhook, kueue, kind: str):
    group = Group(hook.cluster, _TOO_FEW_CPUS)
    group.create_input()
    group.create_trainers(kind)
    eventually(lambda: group.gated() == [True] * _PODS)
    eventually(lambda: group.condition("QuotaReserved") == "False")
    eventually(lambda: group.used_cpu() == "0")
    assert group.gated() == [True] * _PODS
    assert [find_sidecar(one)["name"] for one in group.trainers()] == [names.SIDECAR_CONTAINER] * 2

    group.set_quota(_ENOUGH_CPUS)
    eventually(lambda: group.gated() == [False] * _PODS)
    eventually(lambda: group.used_cpu() == _USED_CPU)
    assert group.condition("Admitted") == "True"


def test_workers_of_a_group_are_replaced_and_its_quota_ends_with_it(hook: Webhook, kueue):
    group, cluster = Group(hook.cluster, _ENOUGH_CPUS), hook.cluster
    group.create_input()
    group.create_trainers("Job")
    eventually(lambda: group.gated() == [False] * _PODS)

    cluster.wait_until_ready(group.name, 2)
    cluster.patch(
        "DistributedInput",
        group.name,
        {
            "spec": {
                "workers": {
                    "template": {"spec": {"containers": [{"name": "worker", "image": "mine:2"}]}}
                }
            }
        },
    )

    def replaced() -> bool:
        """Both workers have the new image, and Kueue holds none of them back."""
        cluster.simulate_kubelet(group.name)
        containers = [one["spec"]["containers"][0] for one in cluster.pods(group.name)]
        images = [one["image"] for one in containers]
        return images == ["mine:2"] * 2 and group.gated() == [False] * _PODS

    eventually(replaced, _LONG)
    assert group.condition("Admitted") == "True"

    for one in group.trainers():
        done: dict[str, Any] = {"status": {"phase": "Succeeded"}}
        cluster.patch("Pod", one["metadata"]["name"], done, "status")
    cluster.patch("DistributedInput", group.name, {"spec": {"suspend": True}})
    eventually(lambda: group.condition("Finished") == "True")
    eventually(lambda: group.used_cpu() == "0")
