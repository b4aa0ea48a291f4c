"""The chart's templates, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from distributed_input.api import environment, names
from distributed_input_operator.kube import kinds
from distributed_input_operator.main import _parser as parser
from distributed_input_operator.webhook.admission import OWNERS
from testing.charts.rendering import CHART, NAME, RELEASE, helm, manifests, one, rendered

CRDS = sorted((CHART.parents[1] / "crds").glob("*.yaml"))
DEFINITION = "CustomResourceDefinition"
CERT_MANAGER = "webhook.certManager.enabled=true"


def test_helm_lint_finds_nothing():
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("replicas=0", "/replicas"),
        ("logLevel=loud", "/logLevel"),
        ("images.pullPolicy=Sometimes", "/images/pullPolicy"),
        ("webhook.timeoutSeconds=31", "/webhook/timeoutSeconds"),
        ("serviceMonitor.interval=often", "/serviceMonitor/interval"),
        ("replica=2", "replica"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(value, told):
    done = helm("template", RELEASE, CHART, "--set", value)
    assert done.returncode != 0
    assert told in done.stderr


def test_the_schema_knows_every_value():
    """An unknown one would be refused, so whoever writes one down can trust that it is used."""
    done = helm("template", RELEASE, CHART, "--values", CHART / "values.yaml")
    assert done.returncode == 0, done.stderr


def definitions(*values: str) -> list[dict[str, Any]]:
    found = [each for each in manifests("here", *values) if each["kind"] == DEFINITION]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def test_the_definitions_are_those_in_crds():
    assert definitions("crds.keep=false") == [yaml.safe_load(crd.read_text()) for crd in CRDS]


def test_the_definitions_outlive_the_release_by_default():
    for each in definitions():
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_cluster_wide_policy_is_for_operators_that_serve_the_whole_cluster():
    def policy_roles(value: str) -> list[str]:
        found = [each for each in manifests("here", value) if each["kind"] == "ClusterRole"]
        return [r["metadata"]["name"] for r in found if r["metadata"]["name"].endswith("-policy")]

    assert policy_roles("namespaced=false")
    assert not policy_roles("namespaced=true")


def test_the_definition_can_be_left_to_others():
    found = manifests("here", "crds.enabled=false")
    assert DEFINITION not in {each["kind"] for each in found}


@pytest.mark.parametrize("namespaced", [False, True])
def test_the_role_grants_what_the_operator_needs_and_no_more(namespaced):
    kind = "Role" if namespaced else "ClusterRole"
    found = one(manifests("here", f"namespaced={str(namespaced).lower()}"), kind, "-inputs")
    granted = {
        (group, resource, verb)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    owners = [(kind.group, kind.plural, kind.verbs) for kind in OWNERS.values()]
    wanted = [*kinds.RULES, *owners]
    assert granted == {
        (group, resource, verb) for group, resource, verbs in wanted for verb in verbs
    }


def test_namespaced_means_one_cluster_wide_right_to_one_object():
    found = manifests("here", "namespaced=true")
    (rule,) = one(found, "ClusterRole")["rules"]
    assert rule["resourceNames"] == [one(found, "MutatingWebhookConfiguration")["metadata"]["name"]]
    assert set(rule["verbs"]) == {"get", "patch"}


def test_with_cert_manager_namespaced_needs_no_cluster_wide_right():
    found = manifests("here", "namespaced=true", CERT_MANAGER)
    assert not [each for each in found if each["kind"].startswith("ClusterRole")]


def test_the_operator_is_told_how_its_images_are_pulled():
    secrets = 'json:images.pullSecrets=[{"name": "registry"}]'
    deployment = one(manifests("here", "images.pullPolicy=Always", secrets), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    args = parser().parse_args(container["args"])
    assert (args.image_pull_policy, args.image_pull_secret) == ("Always", ["registry"])


def test_the_operators_pods_are_those_that_inputs_let_in():
    deployment = one(manifests("here"), "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels[names.COMPONENT_LABEL] == names.OPERATOR_COMPONENT


@pytest.mark.parametrize(
    "values", [(), ("namespaced=true",), (CERT_MANAGER,), ("webhook.port=10260",)]
)
def test_the_operator_knows_the_flags(values):
    deployment = one(manifests("here", *values), "Deployment")
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


def test_the_webhook_is_called_by_the_name_that_its_certificate_has():
    found = manifests("here")
    webhook = one(found, "MutatingWebhookConfiguration")["webhooks"][0]
    service = webhook["clientConfig"]["service"]
    assert one(found, "Service", "-webhook")["metadata"]["name"] == service["name"]
    (container,) = one(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    args = parser().parse_args(container["args"])
    assert args.webhook_host == [f"{service['name']}.{service['namespace']}.svc"]
    assert service["path"] == names.WEBHOOK_PATH
    certificate = one(manifests("here", CERT_MANAGER), "Certificate")
    assert args.webhook_host[0] in certificate["spec"]["dnsNames"]


def test_the_webhook_fails_closed_for_labelled_pods_only():
    webhook = one(manifests("here"), "MutatingWebhookConfiguration")["webhooks"][0]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["objectSelector"] == {"matchLabels": {names.INJECT_LABEL: "true"}}
    # The operator's: an upgrade that named it would undo it.
    assert "caBundle" not in webhook["clientConfig"]
    (container,) = one(manifests("here"), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert f"--webhook-configuration=here-{NAME}" in container["args"]


def test_a_namespaced_webhook_sees_its_namespace_only():
    found = one(manifests("here", "namespaced=true"), "MutatingWebhookConfiguration")
    selector = found["webhooks"][0]["namespaceSelector"]
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "here"}}


def test_without_the_webhook_nothing_of_it_is_left():
    text = rendered("here", "webhook.enabled=false", "crds.enabled=false")
    said = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    assert "webhook" not in "\n".join(said)


def test_one_replica_gets_no_disruption_budget():
    """It would protect nothing."""
    assert "PodDisruptionBudget" in {each["kind"] for each in manifests("here")}
    alone = {each["kind"] for each in manifests("here", "replicas=1")}
    assert "PodDisruptionBudget" not in alone


def test_the_service_monitor_selects_the_metrics_service():
    values = ("serviceMonitor.enabled=true", "serviceMonitor.labels.team=ml", "crds.enabled=false")
    found = manifests("here", *values)
    monitor = one(found, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["team"] == "ml"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    selected = [each for each in found if wanted <= each["metadata"]["labels"].items()]
    (service,) = (each for each in selected if each["kind"] == "Service")
    ports = {port["name"] for port in service["spec"]["ports"]}
    assert {each["port"] for each in monitor["spec"]["endpoints"]} <= ports


def test_images_are_named_once_and_everywhere():
    values = [
        f"images.{part}.{key}={value}"
        for part in ("operator", "sidecar", "worker")
        for key, value in (("repository", f"some.registry/{part}"), ("tag", "x"))
    ]
    text = rendered("here", *values)
    words = [line.split() for line in text.splitlines() if "some.registry" in line]
    assert {each[0] for each in words} == {"image:", "value:"}
    images = {each[-1] for each in words}
    assert images == {f"some.registry/{part}:x" for part in ("operator", "sidecar", "worker")}
