"""`helm upgrade` from a release without v1beta1, and `helm rollback`, on a real API server.

Without nodes, the operator and the webhook run as processes here. So the test replaces the Service
in the definitions by their address.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.resource.conversion.convert import KEPT
from distributed_input_operator.kube.kinds import POLICY
from testing.charts.rendering import CHART, RELEASE, helm
from testing.cluster.binaries import binary
from testing.cluster.control_plane import ControlPlane
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.versions import (
    POLICY_PATH,
    beta_path,
    served,
    set_conversion,
)
from testing.operator.webhooks import run_webhook
from testing.releases import sources

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
BETA = "distributed-input.dev/v1beta1"
NAMESPACE = "releases"


class Installation:
    """A cluster of its own, because one release owns the definitions, with helm's release in it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.cluster = Cluster(plane.client(), NAMESPACE)
        self.cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def helm(self, *command: str | Path) -> None:
        place = ("--namespace", NAMESPACE, "--kubeconfig", self.plane.kubeconfig)
        result = helm(*command, *place)
        assert result.returncode == 0, result.stderr

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(binary("kubectl")), f"--kubeconfig={self.plane.kubeconfig}", *words]
        return subprocess.run(
            [*command, f"--namespace={NAMESPACE}"], capture_output=True, text=True, timeout=60
        )

    @contextmanager
    def serving_beta(self) -> Iterator[None]:
        """Upgrade to this checkout's chart. Convert until the end."""
        self.helm("upgrade", RELEASE, CHART, "--set", "crds.v1beta1=true")
        flags = [f"--conversion-definition={one}" for one in DEFINITIONS]
        with run_webhook(self.cluster, self.plane.kubeconfig, self.folder, *flags) as webhook:
            set_conversion(self.cluster, webhook.port)
            eventually(lambda: served(self.cluster))
            yield


DEFINITIONS = ("distributedinputs.distributed-input.dev", "inputpolicies.distributed-input.dev")


@pytest.fixture
def installed(tmp_path: Path, server_version: tuple[int, int]) -> Iterator[Installation]:
    """Install the chart of release 0.1.0."""
    if server_version < (1, 30):
        pytest.skip("Kubernetes 1.29 refuses the definition of the InputPolicy of release 0.1.0")
    (tmp_path / "release").mkdir()
    sources.extract("0.1.0", tmp_path / "release", "charts", "crds")
    with ControlPlane(tmp_path / "plane") as plane:
        created = Installation(plane, tmp_path)
        created.helm("install", RELEASE, tmp_path / "release" / "charts" / CHART.name)
        eventually(lambda: answers(created.cluster, created.cluster.path("DistributedInput")))
        yield created


def answers(cluster: Cluster, path: str) -> bool:
    try:
        cluster.call("GET", path)
    except RequestRejected:
        return False
    return True


def resource(kind: str, name: str, version: str = BETA, **spec: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def notes(found: Json) -> Json:
    annotations = found["metadata"].get("annotations", {})
    return {key: annotations[key] for key in KEPT.values() if key in annotations}


INPUT_SPEC: Json = {
    "dataset": {"type": "EntryPoint", "entryPoint": {"function": "digits:dataset_fn"}},
    "trainers": {"weight": "500m"},
    "workers": {
        "template": {
            "spec": {
                "containers": [{"name": "worker", "image": "digits:1"}],
                "volumes": [],
            }
        }
    },
}
BUDGET: Json = {
    "name": "training",
    "selector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["batch"]}]},
    "limits": {"workers": 5, "resources": {"cpu": "4"}},
}


def as_beta(cluster: Cluster) -> list[Json]:
    """Return the specs of both inputs and of the policy as v1beta1."""
    paths = (*(beta_path(cluster, name) for name in ("old", "new")), POLICY_PATH)
    return [cluster.call("GET", path)["spec"] for path in paths]


def stored(cluster: Cluster) -> list[Json]:
    """Return the input and the policy that were written as v1beta1, as they are stored."""
    paths = (cluster.path("DistributedInput", "new"), POLICY.path(None, "cluster"))
    return [cluster.call("GET", path) for path in paths]


def create(cluster: Cluster) -> None:
    """Create an input and the policy as v1beta1, with values that only v1beta1 has."""
    cluster.call("POST", beta_path(cluster), resource("DistributedInput", "new", **INPUT_SPEC))
    body = resource("InputPolicy", "cluster", budgets=[BUDGET], stallCosts={"tpu": "1200m"})
    cluster.call("PATCH", POLICY_PATH, body, APPLY, fieldManager="tests")


@pytest.mark.timeout(300)
def test_an_input_of_the_release_keeps_a_tf_data_service_that_is_refused_now(
    installed: Installation,
) -> None:
    """No operator has written its status, and the release's definition has no such rule."""
    cluster = installed.cluster
    alpha = "distributed-input.dev/v1alpha1"
    stock: Json = {"dataset": {"fromTrainer": True}, "tfDataService": {}, "networkPolicy": False}
    cluster.create(resource("DistributedInput", "stock", alpha, **stock))
    installed.helm("upgrade", RELEASE, CHART)

    def is_refused() -> bool:
        try:
            cluster.create(resource("DistributedInput", "new", alpha, **stock), dryRun="All")
        except RequestRejected as error:
            return "spec.tfDataService: has no authentication" in str(error)
        return False

    eventually(is_refused)
    cluster.patch("DistributedInput", "stock", {"spec": {"suspend": True}})
    cluster.patch("DistributedInput", "stock", {"spec": {"tfDataService": {"port": 7090}}})
    with pytest.raises(RequestRejected, match="encryption is immutable"):
        cluster.patch("DistributedInput", "stock", {"spec": {"encryption": "none"}})
    status = {"conditions": [], "encryption": "none"}
    cluster.patch("DistributedInput", "stock", {"status": status}, "status")
    cluster.patch("DistributedInput", "stock", {"spec": {"encryption": "none"}})
    found = cluster.get("DistributedInput", "stock") or {}
    assert found["spec"]["tfDataService"]["port"] == 7090


@pytest.mark.timeout(300)
def test_a_rollback_prunes_nothing_that_only_v1beta1_has(installed: Installation) -> None:
    cluster = installed.cluster
    dataset = {"entryPoint": "digits:dataset_fn"}
    cluster.create(
        resource("DistributedInput", "old", "distributed-input.dev/v1alpha1", dataset=dataset)
    )
    with installed.serving_beta():
        create(cluster)
        before, kept = as_beta(cluster), [notes(one) for one in stored(cluster)]
        assert all(KEPT[BETA] in one for one in kept)
        asked = installed.kubectl("get", "distributedinputs.v1alpha1.distributed-input.dev")
        assert "distributed-input.dev/v1alpha1 DistributedInput is deprecated" in asked.stderr

    installed.helm("rollback", RELEASE, "1")
    eventually(lambda: not answers(cluster, beta_path(cluster)))
    eventually(lambda: answers(cluster, cluster.path("DistributedInput")))
    assert [notes(one) for one in stored(cluster)] == kept
    # Clients of the earlier release write the objects.
    paths = (cluster.path("DistributedInput", "new"), POLICY.path(None, "cluster"))
    for path, spec in zip(paths, ({"workers": {"replicas": 3}}, {"caps": None}), strict=True):
        change = {"spec": spec, "metadata": {"labels": {"team": "vision"}}}
        cluster.call("PATCH", path, change, MERGE)

    with installed.serving_beta():
        before[1]["workers"]["replicas"] = 3
        # A default of release 0.1.0, which it stores with each write. This release has none.
        before[1]["sidecar"]["readAhead"] = 1
        assert as_beta(cluster) == before
