"""The chart's templates, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from distributed_input.api import environment, names
from distributed_input_operator.kube import kinds
from distributed_input_operator.main import _parser as parser
from distributed_input_operator.webhook.admission import OWNERS
from testing.charts.rendering import CHART, NAME, RELEASE, find_one, helm, manifests, render

CRDS = sorted((CHART.parents[1] / "crds").glob("*.yaml"))
DEFINITION = "CustomResourceDefinition"
CERT_MANAGER = "webhook.certManager.enabled=true"


def test_helm_lint_succeeds():
    result = helm("lint", "--strict", CHART)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("replicas=0", "/replicas"),
        ("logLevel=loud", "/logLevel"),
        ("images.pullPolicy=Sometimes", "/images/pullPolicy"),
        ("webhook.timeoutSeconds=31", "/webhook/timeoutSeconds"),
        ("serviceMonitor.interval=often", "/serviceMonitor/interval"),
        ("replica=2", "replica"),
    ],
)
def test_the_error_of_an_invalid_value_names_the_field(value, field):
    result = helm("template", RELEASE, CHART, "--set", value)
    assert result.returncode != 0
    assert field in result.stderr


def test_the_schema_contains_every_value():
    """The schema rejects unknown values, so every value that a user sets is used."""
    result = helm("template", RELEASE, CHART, "--values", CHART / "values.yaml")
    assert result.returncode == 0, result.stderr


def definitions(*values: str) -> list[dict[str, Any]]:
    found = [each for each in manifests("here", *values) if each["kind"] == DEFINITION]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def test_the_chart_installs_the_definitions_in_crds():
    assert definitions("crds.keep=false") == [yaml.safe_load(crd.read_text()) for crd in CRDS]


def test_helm_keeps_the_definitions_on_uninstall_by_default():
    for each in definitions():
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_only_a_cluster_wide_operator_gets_the_role_for_the_policy():
    def policy_roles(value: str) -> list[str]:
        found = [each for each in manifests("here", value) if each["kind"] == "ClusterRole"]
        return [r["metadata"]["name"] for r in found if r["metadata"]["name"].endswith("-policy")]

    assert policy_roles("namespaced=false")
    assert not policy_roles("namespaced=true")


def test_the_definitions_are_optional():
    found = manifests("here", "crds.enabled=false")
    assert DEFINITION not in {each["kind"] for each in found}


@pytest.mark.parametrize("namespaced", [False, True])
def test_the_role_grants_exactly_the_permissions_that_the_operator_needs(namespaced):
    kind = "Role" if namespaced else "ClusterRole"
    found = find_one(manifests("here", f"namespaced={str(namespaced).lower()}"), kind, "-inputs")
    granted = {
        (group, resource, verb)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    owners = [(kind.group, kind.plural, kind.verbs) for kind in OWNERS.values()]
    expected = [*kinds.RULES, *owners]
    assert granted == {
        (group, resource, verb) for group, resource, verbs in expected for verb in verbs
    }


def test_a_namespaced_operator_has_cluster_wide_permissions_on_one_object_only():
    found = manifests("here", "namespaced=true")
    (rule,) = find_one(found, "ClusterRole")["rules"]
    assert rule["resourceNames"] == [
        find_one(found, "MutatingWebhookConfiguration")["metadata"]["name"]
    ]
    assert set(rule["verbs"]) == {"get", "patch"}


def test_a_namespaced_operator_with_cert_manager_has_no_cluster_wide_permissions():
    found = manifests("here", "namespaced=true", CERT_MANAGER)
    assert not [each for each in found if each["kind"].startswith("ClusterRole")]


def test_the_image_pull_settings_become_flags_of_the_operator():
    secrets = 'json:images.pullSecrets=[{"name": "registry"}]'
    deployment = find_one(manifests("here", "images.pullPolicy=Always", secrets), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    args = parser().parse_args(container["args"])
    assert (args.image_pull_policy, args.image_pull_secret) == ("Always", ["registry"])


def test_the_operators_pods_have_the_label_that_network_policies_of_inputs_allow():
    deployment = find_one(manifests("here"), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels[names.COMPONENT_LABEL] == names.OPERATOR_COMPONENT


@pytest.mark.parametrize(
    "values", [(), ("namespaced=true",), (CERT_MANAGER,), ("webhook.port=10260",)]
)
def test_the_operator_accepts_the_flags_of_the_chart(values):
    deployment = find_one(manifests("here", *values), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    args = parser().parse_args(container["args"])
    assert args.namespace == (["here"] if "namespaced=true" in values else [])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert args.webhook_listen == f":{ports['webhook']}"
    assert ports["webhook"] == (10260 if "webhook.port=10260" in values else 9443)
    assert args.listen == f":{ports['health']}"
    env = {each["name"] for each in container["env"]}
    assert {environment.WORKER_IMAGE_ENV, environment.SIDECAR_IMAGE_ENV} <= env
    assert {environment.POD_NAME_ENV, environment.POD_NAMESPACE_ENV} <= env


def test_the_webhooks_certificate_has_the_name_of_its_service():
    found = manifests("here")
    webhook = find_one(found, "MutatingWebhookConfiguration")["webhooks"][0]
    service = webhook["clientConfig"]["service"]
    assert find_one(found, "Service", "-webhook")["metadata"]["name"] == service["name"]
    (container,) = find_one(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    args = parser().parse_args(container["args"])
    assert args.webhook_host == [f"{service['name']}.{service['namespace']}.svc"]
    assert service["path"] == names.WEBHOOK_PATH
    certificate = find_one(manifests("here", CERT_MANAGER), "Certificate")
    assert args.webhook_host[0] in certificate["spec"]["dnsNames"]


def test_the_webhook_fails_closed_for_labelled_pods_only():
    webhook = find_one(manifests("here"), "MutatingWebhookConfiguration")["webhooks"][0]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["objectSelector"] == {"matchLabels": {names.INJECT_LABEL: "true"}}
    # The operator sets this field. If the chart had it, an upgrade would reset it.
    assert "caBundle" not in webhook["clientConfig"]
    (container,) = find_one(manifests("here"), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert f"--webhook-configuration=here-{NAME}" in container["args"]


def test_a_namespaced_webhook_selects_only_its_namespace():
    found = find_one(manifests("here", "namespaced=true"), "MutatingWebhookConfiguration")
    selector = found["webhooks"][0]["namespaceSelector"]
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "here"}}


def test_a_disabled_webhook_leaves_no_object_or_setting():
    text = render("here", "webhook.enabled=false", "crds.enabled=false")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert "webhook" not in "\n".join(lines)


def test_one_replica_gets_no_disruption_budget():
    """A disruption budget cannot protect a single replica."""
    assert "PodDisruptionBudget" in {each["kind"] for each in manifests("here")}
    single_replica_kinds = {each["kind"] for each in manifests("here", "replicas=1")}
    assert "PodDisruptionBudget" not in single_replica_kinds


def test_the_service_monitor_selects_the_metrics_service():
    values = ("serviceMonitor.enabled=true", "serviceMonitor.labels.team=ml", "crds.enabled=false")
    found = manifests("here", *values)
    monitor = find_one(found, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["team"] == "ml"
    expected = monitor["spec"]["selector"]["matchLabels"].items()
    selected = [each for each in found if expected <= each["metadata"]["labels"].items()]
    (service,) = (each for each in selected if each["kind"] == "Service")
    ports = {port["name"] for port in service["spec"]["ports"]}
    assert {each["port"] for each in monitor["spec"]["endpoints"]} <= ports


def test_every_use_of_an_image_has_the_configured_name():
    values = [
        f"images.{part}.{key}={value}"
        for part in ("operator", "sidecar", "worker")
        for key, value in (("repository", f"some.registry/{part}"), ("tag", "x"))
    ]
    text = render("here", *values)
    references = [line.split() for line in text.splitlines() if "some.registry" in line]
    assert {each[0] for each in references} == {"image:", "value:"}
    images = {each[-1] for each in references}
    assert images == {f"some.registry/{part}:x" for part in ("operator", "sidecar", "worker")}
