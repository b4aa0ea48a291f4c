"""What the chart renders, judged by a real API server: schemas, CEL, pod security, RBAC."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes

from testing.charts.rendering import CHART, NAME, RELEASE, helm, rendered
from testing.cluster.binaries import binary

_SECONDS = 60.0


@pytest.fixture(scope="module")
def definition(control_plane) -> None:
    """The resource that `helm test` makes one of."""
    _kubectl(control_plane, "apply", "--server-side", "--force-conflicts", "-f", _CRD)


_CRD = CHART.parents[1] / "crds"


def _kubectl(control_plane, *command: str | Path, text: str = "") -> str:
    done = subprocess.run(
        [binary("kubectl"), f"--kubeconfig={control_plane.kubeconfig}", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


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
        ),
    ],
    ids=["default", "namespaced", "without-webhook", "much"],
)
def test_the_api_server_takes_everything(control_plane, definition, namespace, values):
    """Strictly: an unknown field is an error. And under the restricted pod security standard."""
    _kubectl(
        control_plane,
        *("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"),
        "pod-security.kubernetes.io/warn=restricted",
    )
    said = _kubectl(
        control_plane,
        *("create", "--dry-run=server", "--validate=strict", "-f", "-"),
        text=_without_definition(rendered(namespace, *values)),
    )
    assert "Warning" not in said


def _without_definition(text: str) -> str:
    """The definition is there: creating it again would be refused."""
    found = [one for one in yaml.safe_load_all(text) if one]
    return yaml.safe_dump_all([one for one in found if one["kind"] != "CustomResourceDefinition"])


def test_what_it_installs_can_do_what_it_must(control_plane, api, namespace, tmp_path):
    """Installed by helm itself; then asked as the operator's own ServiceAccount."""
    _install(control_plane, namespace)
    account = f"system:serviceaccount:{namespace}:{NAME}"
    asked = {
        ("list", "distributedinputs.distributed-input.dev", "--all-namespaces"): "yes",
        ("patch", "distributedinputs.distributed-input.dev", "--subresource=status"): "yes",
        ("update", "leases.coordination.k8s.io", f"--namespace={namespace}"): "yes",
        ("update", "leases.coordination.k8s.io", "--namespace=other"): "no",
        ("list", "secrets", "--all-namespaces"): "no",
        ("delete", "pods", "--all-namespaces"): "no",
        ("update", f"secrets/{NAME}-webhook", f"--namespace={namespace}"): "yes",
        ("update", "secrets/another", f"--namespace={namespace}"): "no",
        ("patch", f"mutatingwebhookconfigurations/{namespace}-{NAME}", "--namespace="): "yes",
        ("patch", "mutatingwebhookconfigurations/another", "--namespace="): "no",
    }
    try:
        answers = {question: _can(control_plane, account, *question) for question in asked}
        assert answers == asked
    finally:
        _uninstall(control_plane, namespace)


def test_an_upgrade_leaves_the_ca_bundle_alone(control_plane, api, namespace):
    """It is the operator's: without it, no trainer pod could be made until it is written again."""
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


def test_inputs_outlive_the_release(control_plane, definition, api, namespace):
    _install(control_plane, namespace, "crds.enabled=false")
    _uninstall(control_plane, namespace)
    extensions: Any = kubernetes.ApiextensionsV1Api(api)
    assert extensions.read_custom_resource_definition("distributedinputs.distributed-input.dev")


def test_what_is_uninstalled_is_gone(control_plane, api, namespace):
    _install(control_plane, namespace)
    _uninstall(control_plane, namespace)
    roles: Any = kubernetes.RbacAuthorizationV1Api(api)
    left = [one.metadata.name for one in roles.list_cluster_role().items]
    assert not [name for name in left if name.startswith(namespace)]


def _install(control_plane, namespace: str, *values: str) -> None:
    sets = [word for value in ("crds.enabled=false", *values) for word in ("--set", value)]
    done = helm(
        *("upgrade", "--install", RELEASE, CHART, "--namespace", namespace),
        *("--kubeconfig", control_plane.kubeconfig, *sets),
    )
    assert done.returncode == 0, done.stderr
    assert f"helm test {RELEASE} --namespace {namespace}" in done.stdout


def _uninstall(control_plane, namespace: str) -> None:
    done = helm(
        *("uninstall", RELEASE, "--namespace", namespace),
        *("--kubeconfig", control_plane.kubeconfig),
    )
    assert done.returncode == 0, done.stderr


def _can(control_plane, account: str, verb: str, what: str, where: str) -> str:
    done = subprocess.run(
        [
            *(binary("kubectl"), f"--kubeconfig={control_plane.kubeconfig}"),
            *("auth", "can-i", verb, what, f"--as={account}"),
            *([] if where == "--namespace=" else [where]),
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    return done.stdout.strip()
