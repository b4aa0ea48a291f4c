"""Who may change what an encrypted input trusts, with the rendered policy on a real API server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as kubernetes

from testing.charts.rendering import find_one, manifests
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
TLS = "digits-distributed-input-tls"


class Users:
    """mallory may write ConfigMaps. alice may create Deployments, too, as the operator."""

    def __init__(self, admin: Cluster, control_plane: Any) -> None:
        self.admin, self._plane = admin, control_plane

    def add(self, name: str, *rules: tuple[str, str]) -> Cluster:
        group, user = "rbac.authorization.k8s.io", f"{name}-{self.admin.namespace}"
        role = {
            "metadata": {"name": user},
            "rules": [
                {"apiGroups": [one], "resources": [resource], "verbs": ["*"]}
                for one, resource in rules
            ],
        }
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        path = f"{RBAC}/namespaces/{self.admin.namespace}"
        self.admin.call("POST", f"{path}/roles", role)
        self.admin.call("POST", f"{path}/rolebindings", binding)
        client = self._plane.client()
        client.set_default_header("Impersonate-User", user)
        return Cluster(client, self.admin.namespace)


@pytest.fixture(scope="module")
def users(
    admission_policies: None, control_plane, api: kubernetes.ApiClient
) -> Iterator[tuple[Cluster, Cluster]]:
    """Create a namespace with the policy and both users. Return mallory and alice."""
    name = f"trust-{uuid.uuid4().hex[:8]}"
    core: Any = kubernetes.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": name}})
    admin = Cluster(api, name)
    objects = manifests(name, f'json:namespaces=["{name}"]')
    policies = [find_one(objects, kind, "-trust") for kind in KINDS]
    added = Users(admin, control_plane)
    mallory = added.add("mallory", ("", "configmaps"))
    alice = added.add("alice", ("", "configmaps"), ("apps", "deployments"))
    admin.create(config_map(TLS))
    for one in policies:
        admin.call("POST", f"{ADMISSION}/{KINDS[one['kind']]}", one)
    try:
        eventually(lambda: "may not create deployments" in refusal(mallory, "other" + TLS))
        yield mallory, alice
    finally:
        for one in policies:
            place = f"{ADMISSION}/{KINDS[one['kind']]}/{one['metadata']['name']}"
            admin.call("DELETE", place)
        core.delete_namespace(name)


def config_map(name: str) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"ca.crt": "own"}}


def refusal(user: Cluster, name: str) -> str:
    """Return why a user may not create a ConfigMap. Empty: the user may."""
    try:
        user.create(config_map(name), dryRun="All")
    except RequestRejected as error:
        return str(error)
    return ""


def test_who_may_only_write_config_maps_cannot_add_an_authority(users):
    mallory, _ = users
    with pytest.raises(RequestRejected, match="may not create deployments"):
        mallory.patch("ConfigMap", TLS, {"data": {"ca.crt": "theirs"}})
    assert "may not create deployments" in refusal(mallory, "a" + TLS)


@pytest.mark.parametrize("change", [{"immutable": True}, {"metadata": {"labels": {"a": "b"}}}])
def test_who_may_only_write_config_maps_cannot_stop_renewals(users, change):
    """The operator may change only objects with its label."""
    mallory, _ = users
    with pytest.raises(RequestRejected, match="may not create deployments"):
        mallory.patch("ConfigMap", TLS, change)


def test_the_garbage_collector_may_release_it(users):
    """It may not create Deployments. `kubectl delete --cascade=orphan` removes owners."""
    _, alice = users
    made = alice.create(config_map("owner"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    owned = config_map("owned-" + TLS)
    owned["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
    alice.create(owned)
    alice.call("DELETE", alice.path("ConfigMap", "owner"), {"propagationPolicy": "Orphan"})
    eventually(lambda: alice.get("ConfigMap", "owner") is None)
    released: Any = alice.get("ConfigMap", "owned-" + TLS)
    assert "ownerReferences" not in released["metadata"]


def test_who_may_run_pods_can_change_it(users):
    _, alice = users
    assert refusal(alice, "a" + TLS) == ""
    assert alice.patch("ConfigMap", TLS, {"data": {"ca.crt": "theirs"}}, dryRun="All")


def test_other_config_maps_are_not_affected(users):
    mallory, _ = users
    assert refusal(mallory, "digits-distributed-input") == ""
    assert refusal(mallory, "anything") == ""
