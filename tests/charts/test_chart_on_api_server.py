"""The chart's objects on a real API server: schemas, CEL rules, pod security and RBAC."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes

from testing.charts.rendering import CHART, NAME, RELEASE, helm, render
from testing.cluster.binaries import binary

_SECONDS = 60.0
_LEASE = "leases.coordination.k8s.io/distributed-input-operator"


@pytest.fixture(scope="module")
def definition(control_plane) -> None:
    """Install the definitions: `helm test` creates an input."""
    _kubectl(control_plane, "apply", "--server-side", "--force-conflicts", "-f", _CRD)


_CRD = CHART.parents[1] / "crds"


def _kubectl(control_plane, *command: str | Path, text: str = "") -> str:
    result = subprocess.run(
        [binary("kubectl"), f"--kubeconfig={control_plane.kubeconfig}", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("namespaced=true",),
        ("webhook.enabled=false", "replicas=1", "networkPolicy.enabled=false"),
        (
            'json:networkPolicy.metricsFrom=[{"namespaceSelector": {}}]',
            'json:tolerations=[{"operator": "Exists"}]',
            'json:images.pullSecrets=[{"name": "some"}]',
            "priorityClassName=system-cluster-critical",
            "nodeSelector.some=node",
            'json:extraEnv=[{"name": "HTTPS_PROXY", "value": "proxy"}]',
            'json:securityContext={"seLinuxOptions": {"level": "s0"}}',
            'json:topologySpreadConstraints=[{"maxSkew": 2, "topologyKey": "zone", '
            '"whenUnsatisfiable": "DoNotSchedule"}]',
            f"images.operator.digest=sha256:{64 * 'a'}",
        ),
        (
            'json:namespaces=["default", "kube-public"]',
            "operatorClass=canary",
            "leaderElection.namespace=kube-system",
        ),
    ],
    ids=["default", "namespaced", "without-webhook", "many-values", "namespaces"],
)
def test_the_api_server_accepts_every_object(
    control_plane, definition, namespace, values, server_version
):
    """Unknown fields are errors, and the restricted pod security standard applies."""
    _kubectl(
        control_plane,
        *("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"),
        "pod-security.kubernetes.io/warn=restricted",
    )
    output = _kubectl(
        control_plane,
        *("create", "--dry-run=server", "--validate=strict", "-f", "-"),
        text=_without_definition(
            render(namespace, *values, kubernetes="{}.{}.0".format(*server_version))
        ),
    )
    assert "Warning" not in output


def _without_definition(text: str) -> str:
    """Remove the definitions: they exist, and creating them again would fail."""
    found = [one for one in yaml.safe_load_all(text) if one]
    return yaml.safe_dump_all([one for one in found if one["kind"] != "CustomResourceDefinition"])


def test_the_service_accounts_have_the_expected_permissions(
    control_plane, api, namespace, tmp_path
):
    """Helm installs the chart. `kubectl auth can-i` checks the ServiceAccounts."""
    _install(control_plane, namespace)
    account = f"system:serviceaccount:{namespace}:{NAME}"
    expected = {
        ("list", "distributedinputs.distributed-input.dev", "--all-namespaces"): "yes",
        ("patch", "distributedinputs.distributed-input.dev", "--subresource=status"): "yes",
        ("update", _LEASE, f"--namespace={namespace}"): "yes",
        ("update", _LEASE, "--namespace=other"): "no",
        ("update", "leases.coordination.k8s.io/another", f"--namespace={namespace}"): "no",
        ("create", "secrets", "--all-namespaces"): "yes",
        ("get", "secrets", "--all-namespaces"): "no",
        ("list", "secrets", "--all-namespaces"): "no",
        ("get", f"secrets/{NAME}-tokens", f"--namespace={namespace}"): "yes",
        ("patch", "serviceaccounts", "--all-namespaces"): "no",
        ("delete", "pods", "--all-namespaces"): "no",
        ("update", f"secrets/{NAME}-webhook", f"--namespace={namespace}"): "yes",
        ("update", "secrets/another", f"--namespace={namespace}"): "no",
        ("patch", f"mutatingwebhookconfigurations/{namespace}-{NAME}", "--namespace="): "yes",
        ("patch", "mutatingwebhookconfigurations/another", "--namespace="): "no",
    }
    webhook = {
        ("get", "distributedinputs.distributed-input.dev", "--all-namespaces"): "yes",
        ("list", "distributedinputs.distributed-input.dev", "--all-namespaces"): "no",
        ("get", f"secrets/{NAME}-webhook", f"--namespace={namespace}"): "yes",
        ("get", f"secrets/{NAME}-tokens", f"--namespace={namespace}"): "no",
        ("update", f"secrets/{NAME}-webhook", f"--namespace={namespace}"): "no",
        ("get", "pods", "--all-namespaces"): "no",
        ("create", "secrets", "--all-namespaces"): "no",
        ("patch", f"mutatingwebhookconfigurations/{namespace}-{NAME}", "--namespace="): "no",
    }
    try:
        answers = {question: _can(control_plane, account, *question) for question in expected}
        assert answers == expected
        account = f"{account}-webhook"
        answers = {question: _can(control_plane, account, *question) for question in webhook}
        assert answers == webhook
    finally:
        _uninstall(control_plane, namespace)


def test_an_upgrade_keeps_the_ca_bundle(control_plane, api, namespace):
    """The operator sets the bundle. Without it, trainer pods cannot be created."""
    _install(control_plane, namespace)
    try:
        hooks: Any = kubernetes.AdmissionregistrationV1Api(api)
        name = f"{namespace}-{NAME}"
        bundle = "Q0E="
        change = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]
        hooks.patch_mutating_webhook_configuration(name, change)
        _install(control_plane, namespace, "webhook.timeoutSeconds=7", "replicas=3")
        found = hooks.read_mutating_webhook_configuration(name).webhooks[0]
        assert (found.timeout_seconds, found.client_config.ca_bundle) == (7, bundle)
    finally:
        _uninstall(control_plane, namespace)


def test_uninstalling_the_chart_keeps_the_inputs(control_plane, definition, api, namespace):
    _install(control_plane, namespace, "crds.enabled=false")
    _uninstall(control_plane, namespace)
    extensions: Any = kubernetes.ApiextensionsV1Api(api)
    assert extensions.read_custom_resource_definition("distributedinputs.distributed-input.dev")


def test_uninstalling_the_chart_deletes_its_cluster_roles(control_plane, api, namespace):
    _install(control_plane, namespace)
    _uninstall(control_plane, namespace)
    roles: Any = kubernetes.RbacAuthorizationV1Api(api)
    remaining = [one.metadata.name for one in roles.list_cluster_role().items]
    assert not [name for name in remaining if name.startswith(namespace)]


def _install(control_plane, namespace: str, *values: str) -> None:
    sets = [word for value in ("crds.enabled=false", *values) for word in ("--set", value)]
    result = helm(
        *("upgrade", "--install", RELEASE, CHART, "--namespace", namespace),
        *("--kubeconfig", control_plane.kubeconfig, *sets),
    )
    assert result.returncode == 0, result.stderr
    assert f"helm test {RELEASE} --namespace {namespace}" in result.stdout


def _uninstall(control_plane, namespace: str) -> None:
    result = helm(
        *("uninstall", RELEASE, "--namespace", namespace),
        *("--kubeconfig", control_plane.kubeconfig),
    )
    assert result.returncode == 0, result.stderr


def _can(control_plane, account: str, verb: str, resource: str, namespace_flag: str) -> str:
    result = subprocess.run(
        [
            *(binary("kubectl"), f"--kubeconfig={control_plane.kubeconfig}"),
            *("auth", "can-i", verb, resource, f"--as={account}"),
            *([] if namespace_flag == "--namespace=" else [namespace_flag]),
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    return result.stdout.strip()
