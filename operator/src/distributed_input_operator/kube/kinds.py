"""The kinds of objects that the operator reads and writes, and their paths in the API."""

from __future__ import annotations

from distributed_input.api.resource.crd import PLURAL
from distributed_input.api.resource.input import API_VERSION, GROUP, KIND
from distributed_input.api.resource.policy import POLICY_KIND, POLICY_PLURAL
from distributed_input_operator.objects.kind import Kind

INPUT = Kind(KIND, GROUP, API_VERSION.partition("/")[2], PLURAL, ("get", "list", "watch"))
DEPLOYMENT = Kind("Deployment", "apps", "v1", "deployments")
POD = Kind("Pod", "", "v1", "pods", ("list", "watch", "patch"))
REPLICA_SET = Kind("ReplicaSet", "apps", "v1", "replicasets", ("list",))
"""Not watched: only listed when an input is deleted before all its pods are created."""
SECRET = Kind("Secret", "", "v1", "secrets", ("create",))
"""Created in the namespaces of inputs, and never read there: see `controller/tokens.py`."""
LEASE = Kind("Lease", "coordination.k8s.io", "v1", "leases", ("get", "create", "update"))
"""Used in the operator's own namespace only."""
EVENT = Kind("Event", "", "v1", "events", ("create",))
POLICY = Kind(
    POLICY_KIND,
    GROUP,
    INPUT.version,
    POLICY_PLURAL,
    ("get", "list", "watch"),
    cluster_scoped=True,
)
"""Watched only with the right to do so. An operator for some namespaces may lack it."""
NAMESPACE = Kind("Namespace", "", "v1", "namespaces", ("get",), cluster_scoped=True)
"""Read only if a budget selects namespaces by label."""
SERVICE_ACCOUNT = Kind(
    "ServiceAccount", "", "v1", "serviceaccounts", ("get", "list", "watch", "create")
)
"""Created once: the right to change one would allow to give it credentials."""
CONFIG_MAP = Kind("ConfigMap", "", "v1", "configmaps")
WATCHED = (
    INPUT,
    DEPLOYMENT,
    Kind("Service", "", "v1", "services"),
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
    POD,
)
BY_NAME = {kind.kind: kind for kind in (*WATCHED, SECRET, EVENT, POLICY)}

RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *((kind.group, kind.plural, kind.verbs) for kind in (*WATCHED, REPLICA_SET, SECRET, EVENT)),
    (GROUP, f"{PLURAL}/status", ("patch",)),
    # Some clusters require it of who sets `blockOwnerDeletion` in the children of an input.
    (GROUP, f"{PLURAL}/finalizers", ("update",)),
)
"""(group, resource, verbs) that the controller needs, and the chart's role must grant."""
POLICY_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (GROUP, POLICY_PLURAL, POLICY.verbs),
    (GROUP, f"{POLICY_PLURAL}/status", ("patch",)),
)
"""The same for cluster-scoped resources."""
