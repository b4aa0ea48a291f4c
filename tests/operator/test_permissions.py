"""A right that is missing, a definition that is gone: words that say what to do, no crash loop."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.input import GROUP
from distributed_input_operator.kube.kinds import RULES
from testing.operator.cluster import Cluster
from testing.operator.processes import Operator, eventually, manifest
from tests.operator.conftest import install

_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
_CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedinputs.{GROUP}"
_LEASES = ("coordination.k8s.io", "leases", ("get", "create", "update"))


def grant(cluster: Cluster, without: tuple[str, str] = ("", "")) -> None:
    """The chart's role for service account `operator`, without one (resource, verb)."""
    rules = [
        {
            "apiGroups": [group],
            "resources": [resource],
            "verbs": [verb for verb in verbs if (resource, verb) != without],
        }
        for group, resource, verbs in (*RULES, _LEASES)
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "operator"},
        "rules": rules,
    }
    path = _RBAC.format(cluster.namespace)
    kind, query = "application/apply-patch+yaml", {"fieldManager": "tests", "force": "true"}
    cluster.call("PATCH", f"{path}/roles/operator", role, kind, **query)


@pytest.fixture(scope="module")
def account(cluster, control_plane):
    """A kubeconfig with no rights but those that `grant` gives."""
    core = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
    cluster.call("POST", core, {"metadata": {"name": "operator"}})
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": cluster.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"}
    binding = {"metadata": {"name": "operator"}, "roleRef": role, "subjects": [subject]}
    cluster.call("POST", f"{_RBAC.format(cluster.namespace)}/rolebindings", binding)
    return control_plane.service_account_kubeconfig(cluster.namespace, "operator")


@pytest.fixture
def limited(cluster, account, tmp_path):
    """Starts an operator with that account."""
    made: list[Operator] = []

    def start() -> Operator:
        made.append(Operator(account, cluster.namespace, tmp_path))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.stop()


def test_the_rules_are_enough(cluster, limited):
    grant(cluster)
    operator = limited()
    cluster.create(manifest("enough"))
    eventually(lambda: cluster.condition("enough", "Unschedulable"))
    assert "lacks" not in operator.logged()
    assert "orbidden" not in operator.logged()
    cluster.delete("DistributedInput", "enough")


def test_a_missing_right_to_write_is_a_condition(cluster, limited):
    grant(cluster, without=("deployments", "patch"))
    operator = limited()
    cluster.create(manifest("unwritten"))
    found = eventually(lambda: cluster.condition("unwritten", "Applied"))
    assert found["reason"] == "Forbidden"
    assert "cannot patch resource" in found["message"]
    assert "upgrade the chart, or grant it" in found["message"]
    assert "lacks 'patch' on deployments.apps" in operator.logged()
    assert operator.process.poll() is None
    grant(cluster)
    cluster.patch("DistributedInput", "unwritten", {"spec": {"epochs": 2}})
    eventually(lambda: not cluster.condition("unwritten", "Applied"))
    cluster.delete("DistributedInput", "unwritten")


def test_without_the_right_to_mark_pods_all_else_goes_on(cluster, limited):
    grant(cluster, without=("pods", "patch"))
    limited()
    cluster.create(manifest("unmarked", workers={"replicas": 2}))
    eventually(lambda: len(cluster.pods("unmarked")) == 2)
    cluster.patch("DistributedInput", "unmarked", {"spec": {"replicas": 1}}, "scale")
    eventually(lambda: len(cluster.pods("unmarked")) == 1)
    grant(cluster)
    cluster.delete("DistributedInput", "unmarked")


def test_a_missing_right_to_watch_is_waited_for_in_words(cluster, limited):
    grant(cluster, without=("pods", "watch"))
    operator = limited()
    eventually(lambda: "lacks 'watch' on pods" in operator.logged())
    assert operator.process.poll() is None
    assert operator.get("/healthz")[0] == 200
    grant(cluster)
    cluster.create(manifest("waited"))
    eventually(lambda: cluster.condition("waited", "Unschedulable"))
    cluster.delete("DistributedInput", "waited")


def test_a_deleted_definition_is_told_and_waited_for(cluster, limited):
    grant(cluster)
    operator = limited()
    cluster.create(manifest("before"))
    eventually(lambda: cluster.condition("before", "Unschedulable"))
    cluster.call("DELETE", _CRD)
    try:
        # A pod would restart it: once, for then it waits.
        operator.process.wait(60)
        again = limited()
        eventually(lambda: "is not installed: install the chart" in again.logged())
        assert again.process.poll() is None
    finally:
        install(cluster)
    cluster.create(manifest("after"))
    eventually(lambda: cluster.condition("after", "Unschedulable"))
    cluster.delete("DistributedInput", "after")
