"""Escalations that an attacker with the credentials of the operator could try.

TENANT and OWN in a path are the namespaces of another user and of the operator.
"""

from __future__ import annotations

from typing import Any

from testing.charts.rendering import NAME

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_LABEL = {"distributed-input.dev/input": "digits"}
_OWNER = {
    "apiVersion": "distributed-input.dev/v1beta1",
    "kind": "DistributedInput",
    "name": "digits",
    "uid": "00000000-0000-0000-0000-000000000000",
}
OURS = {"labels": _LABEL, "ownerReferences": [_OWNER]}
_ROLE_REF = {
    "apiGroup": "rbac.authorization.k8s.io",
    "kind": "ClusterRole",
    "name": "cluster-admin",
}


POD = {"spec": {"containers": [{"name": "main", "image": "some:1"}]}}


def deployment(name: str, **meta: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, **meta},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, **POD},
        },
    }


def secret(kind: str, **meta: Any) -> dict[str, Any]:
    annotations = {"kubernetes.io/service-account.name": "default"}
    name = {"name": "made", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {**name, **meta}}


CORE = "/api/v1/namespaces/TENANT"
APPS = "/apis/apps/v1/namespaces/TENANT/deployments"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"

# What the role does not allow: (method, path, body, type of the body).
FORBIDDEN: dict[str, tuple[str, str, Any, str]] = {
    "read a Secret": ("GET", f"{CORE}/secrets/theirs", None, ""),
    "list Secrets": ("GET", f"{CORE}/secrets", None, ""),
    "list the Secrets of all namespaces": ("GET", "/api/v1/secrets", None, ""),
    "watch Secrets": ("GET", "/api/v1/secrets?watch=1", None, ""),
    "read another Secret of its namespace": ("GET", "/api/v1/namespaces/OWN/secrets/x", None, ""),
    "list the Secrets of its namespace": ("GET", "/api/v1/namespaces/OWN/secrets", None, ""),
    "read a Secret by an empty patch": ("PATCH", f"{CORE}/secrets/theirs", {}, MERGE),
    "read a Secret by an apply": (
        "PATCH",
        f"{CORE}/secrets/theirs",
        secret("Opaque", name="theirs"),
        APPLY,
    ),
    "read a Secret by a deletion": ("DELETE", f"{CORE}/secrets/theirs", None, ""),
    "replace a Secret": ("PUT", f"{CORE}/secrets/theirs", secret("Opaque", name="theirs"), ""),
    "patch a ServiceAccount": ("PATCH", f"{CORE}/serviceaccounts/default", {}, MERGE),
    "request a token": ("POST", f"{CORE}/serviceaccounts/default/token", {"spec": {}}, ""),
    "create a pod": ("POST", f"{CORE}/pods", {"metadata": {"name": "made"}, **POD}, ""),
    "delete a pod": ("DELETE", f"{CORE}/pods/theirs", None, ""),
    "exec into a pod": ("POST", f"{CORE}/pods/theirs/exec?command=id", None, ""),
    "read the log of a pod": ("GET", f"{CORE}/pods/theirs/log", None, ""),
    "read a pod through its node": ("GET", "/api/v1/nodes/some/proxy/pods", None, ""),
    "delete a Deployment": ("DELETE", f"{APPS}/theirs", None, ""),
    "delete an input": (
        "DELETE",
        "/apis/distributed-input.dev/v1beta1/namespaces/TENANT/distributedinputs/x",
        None,
        "",
    ),
    "bind a role": (
        "POST",
        f"{_RBAC}/namespaces/TENANT/rolebindings",
        {"metadata": {"name": "made"}, "roleRef": _ROLE_REF},
        "",
    ),
    "bind a role in all namespaces": (
        "POST",
        f"{_RBAC}/clusterrolebindings",
        {"metadata": {"name": "made"}, "roleRef": _ROLE_REF},
        "",
    ),
    "extend its role": ("PATCH", f"{_RBAC}/clusterroles/OWN-{NAME}-inputs", {}, MERGE),
    "read the Lease of another component": (
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
        None,
        "",
    ),
    "change another webhook": (
        "PATCH",
        f"{_ADMISSION}/mutatingwebhookconfigurations/other",
        {},
        MERGE,
    ),
    "create a webhook": (
        "POST",
        f"{_ADMISSION}/mutatingwebhookconfigurations",
        {"metadata": {"name": "made"}},
        "",
    ),
    "remove the policy": (
        "DELETE",
        f"{_ADMISSION}/validatingadmissionpolicies/OWN-{NAME}-writes",
        None,
        "",
    ),
}


# What the role allows, and the policy refuses: (path, body, part of the message).
REFUSED: dict[str, tuple[str, Any, str]] = {
    "a Secret that no input owns": (f"{CORE}/secrets", secret("Opaque"), "with the label"),
    "a Secret with a ServiceAccount's token": (
        f"{CORE}/secrets",
        secret(SERVICE_ACCOUNT_TOKEN),
        "denied request",
    ),
    "such a Secret with the label and an owner": (
        f"{CORE}/secrets",
        secret(SERVICE_ACCOUNT_TOKEN, **OURS),
        "only Secrets of the type Opaque",
    ),
    "such a Secret in its own namespace": (
        "/api/v1/namespaces/OWN/secrets",
        secret(SERVICE_ACCOUNT_TOKEN, **OURS),
        "only Secrets of the type Opaque",
    ),
    "such a Secret under the name of its key": (
        "/api/v1/namespaces/OWN/secrets",
        secret(SERVICE_ACCOUNT_TOKEN, name=f"{NAME}-tokens"),
        "denied request",
    ),
    "a ServiceAccount": (
        f"{CORE}/serviceaccounts",
        {"metadata": {"name": "made"}},
        "with the label",
    ),
    "a Deployment without the label": (APPS, deployment("made"), "with the label"),
    "a Deployment without an owner": (
        APPS,
        deployment("made", labels=_LABEL),
        "that a DistributedInput owns",
    ),
    "a Deployment in kube-system": (
        APPS.replace("TENANT", "kube-system"),
        deployment("made", **OURS),
        "may not write in kube-system",
    ),
    "a Service": (
        f"{CORE}/services",
        {"metadata": {"name": "made"}, "spec": {"ports": [{"port": 80}]}},
        "with the label",
    ),
    "a NetworkPolicy": (
        "/apis/networking.k8s.io/v1/namespaces/TENANT/networkpolicies",
        {"metadata": {"name": "made"}, "spec": {"podSelector": {}}},
        "with the label",
    ),
}
