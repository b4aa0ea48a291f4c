"""Missing permissions and a missing CRD cause clear messages and no crash loop."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.input import GROUP
from distributed_input_operator.kube.kinds import RULES
from testing.operator.cluster import Cluster
from testing.operator.processes import Operator, eventually, manifest
from tests.operator.conftest import install

_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
_CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedinputs.{GROUP}"
_LEASES = ("coordination.k8s.io", "leases", ("get", "create", "update"))


def grant(cluster: Cluster, without: tuple[str, str] = ("", "")) -> None:
    """Create the chart's role for ServiceAccount `operator`, without one (resource, verb)."""
    rules = [
        {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": [verb for verb in verbs if (resource, verb) != without],
        }
        for group, resource, verbs in (*RULES, _LEASES)
    ]
    role: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "operator"},
        "rules": rules,
    }
    key = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    role["rules"].append({**key, "resourceNames": [names.TOKEN_KEY_SECRET]})
    path = _RBAC.format(cluster.namespace)
    kind, query = "application/apply-patch+yaml", {"fieldManager": "tests", "force": "true"}
    cluster.call("PATCH", f"{path}/roles/operator", role, kind, **query)


@pytest.fixture(scope="module")
def account(cluster, control_plane):
    """Return a kubeconfig that has only the permissions of `grant`."""
    core = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    cluster.call("POST", core, {"metadata": {"name": "operator"}})
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": cluster.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"}
    binding = {"metadata": {"name": "operator"}, "roleRef": role, "subjects": [subject]}
    cluster.call("POST", f"{_RBAC.format(cluster.namespace)}/rolebindings", binding)
    return control_plane.service_account_kubeconfig(cluster.namespace, "operator")


@pytest.fixture
def start_operator(cluster, account, tmp_path):
    """Return a function that starts an operator with this account."""
    created: list[Operator] = []

    def start() -> Operator:
        created.append(Operator(account, cluster.namespace, tmp_path))
        return created[-1]

    yield start
    for one in created:
        if one.process.poll() is None:
            one.stop()


def test_the_permissions_in_the_chart_are_sufficient(cluster, start_operator):
    grant(cluster)
    operator = start_operator()
    cluster.create(manifest("enough"))
    eventually(lambda: cluster.condition("enough", "Unschedulable"))
    assert "lacks" not in operator.read_log()
    assert "orbidden" not in operator.read_log()
    cluster.delete("DistributedInput", "enough")


def test_a_missing_write_permission_causes_a_condition(cluster, start_operator):
    grant(cluster, without=("deployments", "patch"))
    operator = start_operator()
    cluster.create(manifest("unwritten"))
    found = eventually(lambda: cluster.condition("unwritten", "Applied"))
    assert found["reason"] == "Forbidden"
    assert "cannot patch resource" in found["message"]
    assert "upgrade the chart, or grant it" in found["message"]
    assert "lacks 'patch' on deployments.apps" in operator.read_log()
    assert operator.process.poll() is None
    grant(cluster)
    cluster.patch("DistributedInput", "unwritten", {"spec": {"epochs": 2}})
    eventually(lambda: not cluster.condition("unwritten", "Applied"))
    cluster.delete("DistributedInput", "unwritten")


def test_scaling_works_without_the_permission_to_annotate_pods(cluster, start_operator):
    grant(cluster, without=("pods", "patch"))
    start_operator()
    cluster.create(manifest("unmarked", workers={"replicas": 2}))
    eventually(lambda: len(cluster.pods("unmarked")) == 2)
    cluster.patch("DistributedInput", "unmarked", {"spec": {"replicas": 1}}, "scale")
    eventually(lambda: len(cluster.pods("unmarked")) == 1)
    grant(cluster)
    cluster.delete("DistributedInput", "unmarked")


def test_a_missing_watch_permission_is_logged_until_it_is_granted(cluster, start_operator):
    grant(cluster, without=("pods", "watch"))
    operator = start_operator()
    eventually(lambda: "lacks 'watch' on pods" in operator.read_log())
    assert operator.process.poll() is None
    assert operator.get("/healthz")[0] == 200
    grant(cluster)
    cluster.create(manifest("waited"))
    eventually(lambda: cluster.condition("waited", "Unschedulable"))
    cluster.delete("DistributedInput", "waited")


def test_the_operator_logs_a_missing_crd_and_waits_for_it(cluster, start_operator):
    grant(cluster)
    operator = start_operator()
    cluster.create(manifest("before"))
    eventually(lambda: cluster.condition("before", "Unschedulable"))
    cluster.call("DELETE", _CRD)
    try:
        # Kubernetes restarts the operator once. The new process waits for the CRD.
        operator.process.wait(60)
        restarted = start_operator()
        eventually(lambda: "is not installed: install the chart" in restarted.read_log())
        assert restarted.process.poll() is None
    finally:
        install(cluster)
    cluster.create(manifest("after"))
    eventually(lambda: cluster.condition("after", "Unschedulable"))
    cluster.delete("DistributedInput", "after")
