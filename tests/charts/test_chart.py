"""The chart's templates, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from distributed_input.api import environment, names
from distributed_input_operator.injection.rank import OWNERS
from distributed_input_operator.kube import kinds
from distributed_input_operator.main import _parser as parser
from distributed_input_operator.webhook.main import parser as webhook_parser
from testing.charts.rendering import (
    CHART,
    NAME,
    OPERATOR,
    RELEASE,
    WEBHOOK,
    container,
    find_one,
    granted,
    helm,
    manifests,
    render,
)

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
        ("rollout.maxInputs=0%", "/rollout/maxInputs"),
        ("operatorClass=No", "/operatorClass"),
        ("encryption.minimum=none", "/encryption/minimum"),
        ("encryption.certManager.enabled=true", "/encryption/certManager/issuerRef"),
        ("encryption.certManager.duration=1y", "/encryption/certManager/duration"),
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
def test_the_roles_grant_exactly_the_permissions_that_the_processes_need(namespaced):
    kind = "Role" if namespaced else "ClusterRole"
    found = manifests("here", f"namespaced={str(namespaced).lower()}")
    assert granted(find_one(found, kind, "-inputs")) == {
        (group, resource, verb) for group, resource, verbs in kinds.RULES for verb in verbs
    }
    read = [kinds.INPUT, *OWNERS]
    assert granted(find_one(found, kind, "-injection")) == {
        (kind.group, kind.plural, "get") for kind in read
    }


def test_the_webhook_can_only_get_objects():
    found = manifests("here")
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in found
        if each["kind"].endswith("Binding")
        and WEBHOOK in [s["name"] for s in each.get("subjects", [])]
    }
    roles = [one for one in found if (one["kind"], one["metadata"]["name"]) in bound]
    assert len(roles) == 3
    assert {verb for role in roles for _, _, verb in granted(role)} == {"get"}
    named = [
        rule["resourceNames"]
        for role in roles
        for rule in role["rules"]
        if rule["resources"] in (["secrets"], ["mutatingwebhookconfigurations"])
    ]
    assert sorted(named) == [[WEBHOOK], [f"here-{NAME}"]]


def test_the_operator_reads_no_secret_by_another_name_than_its_own():
    for role in (one for one in manifests("here") if one["kind"] in ("Role", "ClusterRole")):
        for rule in role["rules"]:
            if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
                assert role["kind"] == "Role"
                assert set(rule["resourceNames"]) <= {f"{NAME}-tokens", f"{NAME}-webhook"}


def test_the_role_and_the_code_agree_on_the_names_of_objects():
    rules = find_one(manifests("here"), "Role", "-leader")["rules"]
    (lease,) = [one for one in rules if one["resources"] == ["leases"] and "get" in one["verbs"]]
    assert lease["resourceNames"] == [names.OPERATOR]
    args = parser().parse_args(container(OPERATOR)["args"])
    assert args.token_key_secret == f"{NAME}-tokens"


def test_the_admission_policy_covers_every_kind_that_the_operator_writes():
    policy = find_one(manifests("here"), "ValidatingAdmissionPolicy", "-writes")["spec"]
    covered = {
        (group, resource)
        for rule in policy["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    written = {
        (group, resource)
        for group, resource, verbs in kinds.RULES
        if {"create", "patch"} & set(verbs) and "/" not in resource
    }
    assert covered == written - {("", "events")}
    condition = policy["matchConditions"][0]["expression"]
    assert f"'system:serviceaccount:here:{NAME}'" in condition
    assert any(f"'{names.INPUT_LABEL}'" in one["expression"] for one in policy["validations"])


@pytest.mark.parametrize("value", ["admissionPolicy.enabled=false", "namespaced=true"])
def test_the_admission_policy_is_optional(value):
    found = {each["kind"] for each in manifests("here", value)}
    assert not {kind for kind in found if kind.startswith("ValidatingAdmissionPolicy")}


def test_a_cluster_without_admission_policies_gets_none():
    old = helm("template", RELEASE, CHART, "--kube-version", "1.29.0")
    assert old.returncode == 0
    assert "ValidatingAdmissionPolicy" not in old.stdout


def test_a_namespaced_release_has_cluster_wide_permissions_on_one_object_only():
    found = manifests("here", "namespaced=true")
    name = find_one(found, "MutatingWebhookConfiguration")["metadata"]["name"]
    roles = [each for each in found if each["kind"] == "ClusterRole"]
    assert all(rule["resourceNames"] == [name] for role in roles for rule in role["rules"])
    resource = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
    assert set.union(*map(granted, roles)) == {(*resource, "get"), (*resource, "patch")}


def test_a_namespaced_operator_with_cert_manager_has_no_cluster_wide_permissions():
    found = manifests("here", "namespaced=true", CERT_MANAGER)
    assert not [each for each in found if each["kind"].startswith("ClusterRole")]


def test_the_image_pull_settings_become_flags():
    values = ("images.pullPolicy=Always", 'json:images.pullSecrets=[{"name": "registry"}]')
    args = parser().parse_args(container(OPERATOR, *values)["args"])
    assert (args.image_pull_policy, args.image_pull_secret) == ("Always", ["registry"])
    args = webhook_parser().parse_args(container(WEBHOOK, *values)["args"])
    assert args.image_pull_policy == "Always"


def test_the_operators_pods_have_the_label_that_network_policies_of_inputs_allow():
    found = manifests("here")
    components = {OPERATOR: names.OPERATOR_COMPONENT, WEBHOOK: names.WEBHOOK_COMPONENT}
    for name, component in components.items():
        labels = find_one(found, "Deployment", name)["spec"]["template"]["metadata"]["labels"]
        assert labels[names.COMPONENT_LABEL] == component


def test_the_selectors_of_operator_and_webhook_do_not_overlap():
    """The selector of a Deployment cannot change, which cannot change."""
    found = manifests("here")
    operator = find_one(found, "Deployment", OPERATOR)["spec"]["selector"]["matchLabels"]
    webhook = find_one(found, "Deployment", WEBHOOK)["spec"]["selector"]["matchLabels"]
    assert operator == {
        "app.kubernetes.io/name": "distributed-input",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/component": "operator",
    }
    assert webhook == {**operator, "app.kubernetes.io/component": "webhook"}
    assert find_one(found, "Service", "-webhook")["spec"]["selector"] == webhook


@pytest.mark.parametrize(
    "values", [(), ("namespaced=true",), (CERT_MANAGER,), ("webhook.port=10260",)]
)
def test_the_processes_accept_the_flags_of_the_chart(values):
    operator, webhook = container(OPERATOR, *values), container(WEBHOOK, *values)
    args = parser().parse_args(operator["args"])
    assert args.namespace == (["here"] if "namespaced=true" in values else [])
    own = webhook_parser().parse_args(webhook["args"])
    ports = {port["name"]: port["containerPort"] for port in webhook["ports"]}
    assert own.webhook_listen == f":{ports['webhook']}"
    assert ports["webhook"] == (10260 if "webhook.port=10260" in values else names.WEBHOOK_PORT)
    # With cert-manager, no process of ours writes the certificate.
    assert (args.webhook_host == []) == (own.webhook_certificate is not None)
    if args.webhook_host:
        assert args.webhook_secret == own.webhook_secret == WEBHOOK
        assert args.webhook_configuration == own.webhook_configuration == f"here-{NAME}"
    for one, found in ((operator, args), (webhook, own)):
        ports = {port["name"]: port["containerPort"] for port in one["ports"]}
        assert found.listen == f":{ports['health']}"
        env = {each["name"] for each in one["env"]}
        assert {environment.WORKER_IMAGE_ENV, environment.SIDECAR_IMAGE_ENV} <= env
        assert {environment.POD_NAME_ENV, environment.POD_NAMESPACE_ENV} <= env


def test_the_number_of_webhook_pods_is_that_of_the_operator_by_default():
    def replicas(*values: str) -> list[int]:
        found = manifests("here", *values)
        both = [find_one(found, "Deployment", name) for name in (OPERATOR, WEBHOOK)]
        return [each["spec"]["replicas"] for each in both]

    assert replicas() == [2, 2]
    assert replicas("replicas=1") == [1, 1]
    assert replicas("replicas=1", "webhook.replicas=3") == [1, 3]


def test_the_webhooks_certificate_has_the_name_of_its_service():
    found = manifests("here")
    webhook = find_one(found, "MutatingWebhookConfiguration")["webhooks"][0]
    service = webhook["clientConfig"]["service"]
    assert find_one(found, "Service", "-webhook")["metadata"]["name"] == service["name"]
    args = parser().parse_args(container(OPERATOR)["args"])
    assert args.webhook_host == [f"{service['name']}.{service['namespace']}.svc"]
    found = manifests("here", CERT_MANAGER)
    assert args.webhook_host[0] in find_one(found, "Certificate")["spec"]["dnsNames"]
    webhook = find_one(found, "MutatingWebhookConfiguration")["webhooks"][0]
    assert webhook["clientConfig"]["service"]["path"] == names.WEBHOOK_PATH


def test_the_webhook_fails_closed_for_labelled_pods_only():
    webhook = find_one(manifests("here"), "MutatingWebhookConfiguration")["webhooks"][0]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["objectSelector"] == {"matchLabels": {names.INJECT_LABEL: "true"}}
    # The operator sets these fields. If the chart had them, an upgrade would reset them.
    assert "caBundle" not in webhook["clientConfig"]
    assert "path" not in webhook["clientConfig"]["service"]


def test_a_namespaced_webhook_selects_only_its_namespace():
    found = find_one(manifests("here", "namespaced=true"), "MutatingWebhookConfiguration")
    selector = found["webhooks"][0]["namespaceSelector"]
    (term,) = selector["matchExpressions"]
    assert (term["key"], term["operator"]) == ("kubernetes.io/metadata.name", "In")
    assert term["values"] == ["here"]


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
