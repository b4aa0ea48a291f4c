"""InputPolicy v1beta1 on a real API server, with the operator and the webhook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.api.resource.conversion.policy import UNKNOWN
from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.policies import worker_replicas
from testing.operator.processes import eventually, manifest
from testing.operator.versions import POLICY_PATH, serve_beta
from testing.operator.webhooks import Webhook

Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def webhook(
    cluster: Cluster, control_plane: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Webhook]:
    folder = tmp_path_factory.mktemp("policy")
    with serve_beta(cluster, control_plane.kubeconfig, folder) as created:
        yield created


def apply(cluster: Cluster, **spec: Any) -> Json:
    body = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "InputPolicy",
        "metadata": {"name": "cluster"},
        "spec": spec,
    }
    found: Json = cluster.call(
        "PATCH", POLICY_PATH, body, APPLY, fieldManager="tests", force="true"
    )
    return found


@pytest.fixture
def policy(cluster: Cluster, webhook: Webhook) -> Iterator[Json]:
    """A limit of two workers for inputs that are not for batch jobs."""
    budget = {
        "name": "training",
        "namespaces": [cluster.namespace],
        "selector": {
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["batch"]}]
        },
        "limits": {"workers": 2, "resources": {"cpu": 100}},
    }
    yield apply(cluster, budgets=[budget], stallCosts={"tpu": "1200m"})
    cluster.call("DELETE", POLICY.path(None, "cluster"))


def test_the_operator_applies_requirements_of_v1beta1(cluster: Cluster, policy: Json) -> None:
    batch = manifest("batch", workers={"replicas": 4})
    batch["metadata"]["labels"] = {"tier": "batch"}
    eventually(lambda: cluster.call("GET", POLICY_PATH).get("status", {}).get("summary"))
    cluster.create(manifest("training", workers={"replicas": 4}))
    cluster.create(batch)
    eventually(lambda: worker_replicas(cluster, "batch") == 4)
    eventually(lambda: worker_replicas(cluster, "training") == 2)


def test_a_change_as_v1alpha1_keeps_the_requirements(cluster: Cluster, policy: Json) -> None:
    stored = cluster.call("GET", POLICY.path(None, "cluster"))
    (budget,) = stored["spec"]["budgets"]
    assert set(budget["selector"]) == {UNKNOWN}
    assert stored["spec"]["stallCosts"] == {"tpu": 1.2}
    budget["limits"]["workers"] = 3
    cluster.call("PATCH", POLICY.path(None, "cluster"), {"spec": stored["spec"]}, MERGE)
    changed = cluster.call("GET", POLICY_PATH)
    expected = policy["spec"]
    expected["budgets"][0]["limits"]["workers"] = 3
    assert changed["spec"] == expected


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (
            {"appliesTo": "OtherInputs", "selector": {"matchLabels": {"a": "b"}}},
            "appliesTo OtherInputs excludes",
        ),
        (
            {
                "limits": {"resources": {"nvidia.com/gpu": 1}},
                "guaranteed": {"resources": {"nvidia.com/gpu": "1500m"}},
            },
            "guaranteed.resources is greater than limits.resources",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "operators In and NotIn need values",
        ),
    ],
)
def test_the_api_server_refuses_an_invalid_budget(
    cluster: Cluster, webhook: Webhook, budget: Json, message: str
) -> None:
    with pytest.raises(RequestRejected, match=message):
        apply(cluster, budgets=[{"name": "a", **budget}])
