"""The chart's policy on users' rights applies to v1beta1, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.api.resource.conversion.convert import KEPT, _seen
from distributed_input.api.resource.input import API_VERSION
from distributed_input.api.resource.v1beta1.input import BETA_VERSION
from testing.charts.rendering import find_one, manifests
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.versions import beta_path, serve_beta

Json = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
ENTRY = {
    "type": "EntryPoint",
    "entryPoint": {"function": "digits:dataset_fn", "source": {"type": "Image"}},
}


@pytest.fixture(scope="module")
def user(
    admission_policies: None,
    cluster: Cluster,
    control_plane: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Requests of a user who may write inputs, and create nothing else."""
    objects = manifests(cluster.namespace, f'json:namespaces=["{cluster.namespace}"]')
    policies = [find_one(objects, kind, "-users") for kind in KINDS]
    group, name = "rbac.authorization.k8s.io", f"user-{cluster.namespace}"
    rules = [{"apiGroups": ["distributed-input.dev"], "resources": ["*"], "verbs": ["*"]}]
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    path = f"{RBAC}/namespaces/{cluster.namespace}"
    cluster.call("POST", f"{path}/roles", {"metadata": {"name": name}, "rules": rules})
    cluster.call("POST", f"{path}/rolebindings", binding)
    client = control_plane.client()
    client.set_default_header("Impersonate-User", name)
    created = Cluster(client, cluster.namespace)
    folder = tmp_path_factory.mktemp("rights")
    with serve_beta(cluster, control_plane.kubeconfig, folder):
        for one in policies:
            cluster.call("POST", f"{ADMISSION}/{KINDS[one['kind']]}", one)
        try:
            eventually(lambda: "spec.dataset.entryPoint" in refusal(created, dataset=ENTRY))
            yield created
        finally:
            for one in policies:
                place = f"{ADMISSION}/{KINDS[one['kind']]}/{one['metadata']['name']}"
                cluster.call("DELETE", place)


def refusal(user: Cluster, **spec: Any) -> str:
    """Return why the API server refuses an input of v1beta1. Empty: it does not."""
    body = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": "mine"},
        "spec": spec,
    }
    try:
        user.call("POST", beta_path(user), body, dryRun="All")
    except RequestRejected as error:
        return str(error)
    return ""


def pod(**spec: Any) -> Json:
    return {"template": {"spec": spec}}


REFUSED = [
    ({"workers": pod(containers=[{"name": "worker", "image": "x"}])}, "spec.workers.image"),
    ({"workers": pod(hostNetwork=True)}, "spec.workers.podTemplate"),
    ({"workers": pod(serviceAccountName="admin")}, "spec.workers.serviceAccountName"),
    ({"workers": {"accelerator": {"resourceName": "amd.com/gpu"}}}, "spec.workers.resources"),
    ({"workers": {"accelerator": {"resourceName": "nvidia.com/gpu"}}}, "spec.workers.accelerator"),
    ({"networkPolicy": "Open"}, "spec.networkPolicy"),
]


def test_an_input_without_special_fields_is_allowed(user: Cluster) -> None:
    assert refusal(user, seed=1, workers={"replicas": 2}, networkPolicy="Restricted") == ""


@pytest.mark.parametrize(("spec", "field"), REFUSED, ids=[row[1] for row in REFUSED])
def test_a_user_without_rights_cannot_use_v1beta1_instead(
    user: Cluster, spec: Json, field: str
) -> None:
    assert field in refusal(user, **spec)


@pytest.mark.parametrize("field", ["spec.workers.podTemplate", "spec.networkPolicy"])
@pytest.mark.parametrize("complete", [True, False], ids=["complete", "without digest"])
def test_an_annotation_of_the_conversion_gives_no_rights(
    user: Cluster, field: str, complete: bool
) -> None:
    """What an annotation keeps cannot change what the fields mean."""
    path = tuple(field.split("."))
    # With the template's default, because the digest is that of the fields with defaults.
    workers = {"replicas": 1, **pod(terminationGracePeriodSeconds=60)}
    spec: Json = {"workers": workers, "networkPolicy": "Restricted"}
    row: Json = {"path": path, "value": VALUES[field]}
    if complete and (seen := _seen(path, API_VERSION, {"spec": spec}, BETA_VERSION)):
        row["seen"] = seen
    annotations = {KEPT[API_VERSION]: json.dumps([row])}
    name = f"mine-{path[-1].lower()}-{complete}".lower()
    body = {
        "apiVersion": BETA_VERSION,
        "kind": "DistributedInput",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }
    user.call("POST", beta_path(user), body)
    stored = user.get("DistributedInput", name) or {}
    assert "podTemplate" not in stored["spec"]["workers"]
    assert stored["spec"]["networkPolicy"] is True


VALUES = {
    "spec.workers.podTemplate": {"spec": {"hostNetwork": True}},
    "spec.networkPolicy": False,
}
