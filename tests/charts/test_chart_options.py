"""Values of the chart that administrators set: namespaces, classes, pods, accounts and monitors."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from distributed_input.api import environment, identity, names
from distributed_input_operator.main import _parser as parser
from distributed_input_operator.reconcile.pace import PaceLimit, parse_limit
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


def test_a_list_of_namespaces_gives_roles_in_each():
    values = ('json:namespaces=["a", "b"]', "leaderElection.namespace=shared")
    found = manifests("here", *values)
    args = parser().parse_args(container(OPERATOR, *values)["args"])
    assert args.namespace == ["a", "b"]
    assert args.lease_namespace == "shared"
    names_of_roles = {
        (one["metadata"]["namespace"], one["metadata"]["name"].removeprefix(f"here-{NAME}-"))
        for one in found
        if one["kind"] == "Role" and one["metadata"]["namespace"] != "here"
    }
    assert names_of_roles == {
        *((namespace, "inputs") for namespace in "ab"),
        *((namespace, "injection") for namespace in "ab"),
        ("shared", "leader"),
    }
    (webhook,) = find_one(found, "MutatingWebhookConfiguration")["webhooks"]
    (term,) = webhook["namespaceSelector"]["matchExpressions"]
    assert term["values"] == ["a", "b"]
    kinds_found = {one["metadata"]["name"] for one in found if one["kind"] == "ClusterRole"}
    assert not [name for name in kinds_found if name.endswith(("-inputs", "-policy"))]


def test_the_class_reaches_operator_webhook_lease_and_test():
    values = ("operatorClass=canary",)
    for name, flags in ((OPERATOR, parser()), (WEBHOOK, webhook_parser())):
        assert flags.parse_args(container(name, *values)["args"]).operator_class == "canary"
    rules = find_one(manifests("here", *values), "Role", "-leader")["rules"]
    assert rules[0]["resourceNames"] == [names.operator("canary")]
    assert "managedBy: distributed-input.dev/canary" in render("here", *values)


def test_the_pace_of_rollouts_reaches_the_operator():
    for value, limit in (("20%", PaceLimit(20)), ("7", PaceLimit(7, is_percentage=False))):
        args = parser().parse_args(container(OPERATOR, f"rollout.maxInputs={value}")["args"])
        assert args.rollout_max_inputs == limit


def test_the_life_of_certificates_reaches_the_operator():
    args = parser().parse_args(container(OPERATOR, "encryption.certificateHours=2")["args"])
    assert args.certificate_hours == 2
    assert parser().parse_args(container(OPERATOR)["args"]).certificate_hours == 24


def test_the_minimum_of_encryption_is_a_policy_of_the_served_namespaces():
    def policies(*values: str) -> list[dict[str, Any]]:
        kind = "ValidatingAdmissionPolicy"
        found = [one for one in manifests("here", *values) if one["kind"] == kind]
        return [one for one in found if one["metadata"]["name"].endswith("-encryption")]

    assert policies() == policies("encryption.minimum=None") == []
    assert policies("encryption.minimum=null") == [], "the default"
    (everywhere,) = policies("encryption.minimum=Control")
    assert "namespaceSelector" not in everywhere["spec"]["matchConstraints"]
    (listed,) = policies("encryption.minimum=All", "namespaces={a,b}")
    (term,) = listed["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert term["values"] == ["a", "b"]


def test_the_input_of_helm_test_has_the_default_encryption():
    found = yaml.safe_load_all(render("here", "encryption.minimum=All"))
    (one,) = (one for one in found if one and one["kind"] == "DistributedInput")
    assert "encryption" not in one["spec"]


@pytest.mark.parametrize(
    "options",
    [
        ("--set", "namespaced=true"),
        ("--set", "admissionPolicy.enabled=false"),
        ("--kube-version", "1.29.14"),
    ],
)
def test_a_minimum_of_encryption_that_nothing_enforces_is_an_error(options):
    command = ("template", RELEASE, CHART, "--set", "encryption.minimum=All")
    assert helm(*command, "--kube-version", "1.30.0-gke.1").returncode == 0
    refused = helm(*command, *options)
    assert refused.returncode != 0
    assert "encryption.minimum=All needs an admission policy: Kubernetes 1.30" in refused.stderr


PLATFORM = (
    "encryption.certManager.enabled=true",
    "encryption.certManager.issuerRef.name=platform",
    "encryption.certManager.issuerRef.kind=ClusterIssuer",
)


def test_an_authority_of_cert_manager_signs_those_of_inputs():
    found = manifests("here", *PLATFORM)
    one = find_one(found, "Certificate")
    spec = one["spec"]
    assert one["metadata"]["namespace"] == "here"
    assert (spec["isCA"], spec["secretName"]) == (True, f"{NAME}-authority")
    assert spec["issuerRef"] == {"name": "platform", "kind": "ClusterIssuer"}
    args = parser().parse_args(container(OPERATOR, *PLATFORM)["args"])
    assert args.authority_secret == spec["secretName"]
    readers = [
        (role["kind"], role["metadata"]["name"], rule["verbs"])
        for role in found
        for rule in role.get("rules", ())
        if spec["secretName"] in rule.get("resourceNames", ())
    ]
    assert readers == [("Role", NAME, ["get"])], "only the operator, and it cannot change it"


@pytest.mark.parametrize(
    "values", ["namespaced=true", 'json:namespaces=["a", "here"]', "namespaces={here}"]
)
def test_no_input_runs_beside_the_key_of_the_authority(values):
    """A worker could mount its Secret."""
    option = ("--set-json", values[5:]) if values.startswith("json:") else ("--set", values)
    command = ("template", RELEASE, CHART, "--namespace", "here", *option)
    assert helm(*command).returncode == 0
    refused = helm(*command, "--set", ",".join(PLATFORM))
    assert refused.returncode != 0
    assert "encryption.certManager needs a release in a namespace without inputs" in refused.stderr
    assert manifests("elsewhere", *PLATFORM, 'json:namespaces=["a", "here"]')


def test_the_authority_signs_only_names_of_inputs():
    spec = find_one(manifests("here", *PLATFORM), "Certificate")["spec"]
    domains = {"dnsDomains": [identity.DOMAIN], "uriDomains": [identity.DOMAIN]}
    assert spec["nameConstraints"] == {"critical": True, "permitted": domains}
    off = "encryption.certManager.nameConstraints=false"
    old = find_one(manifests("here", *PLATFORM, off), "Certificate")["spec"]
    assert old == {key: spec[key] for key in spec if key != "nameConstraints"}


def test_by_default_there_is_no_object_of_cert_manager():
    assert "cert-manager" not in render("here")
    assert parser().parse_args(container(OPERATOR)["args"]).authority_secret == ""


def test_both_certificates_of_cert_manager_are_apart():
    found = manifests("here", *PLATFORM, "webhook.certManager.enabled=true")
    certificates = [one for one in found if one["kind"] == "Certificate"]
    secrets = {one["spec"]["secretName"]: one["spec"].get("isCA") for one in certificates}
    assert secrets == {f"{NAME}-authority": True, f"{NAME}-webhook": None}
    (issuer,) = (one for one in found if one["kind"] == "Issuer")
    assert issuer["metadata"]["name"] == f"{NAME}-webhook"


def test_a_digest_takes_precedence_over_the_tag():
    digest = f"sha256:{64 * 'a'}"
    values = (f"images.worker.digest={digest}", "images.worker.tag=x")
    env = {one["name"]: one.get("value") for one in container(OPERATOR, *values)["env"]}
    assert env[environment.WORKER_IMAGE_ENV] == f"distributed-input-worker@{digest}"


def pod_spec(name: str, *values: str) -> dict[str, Any]:
    return dict(
        find_one(manifests("here", *values), "Deployment", name)["spec"]["template"]["spec"]
    )


@pytest.mark.parametrize("name", [OPERATOR, WEBHOOK])
def test_options_of_both_processes(name):
    zone = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    values = (
        'json:extraEnv=[{"name": "HTTPS_PROXY", "value": "proxy"}]',
        f"json:topologySpreadConstraints=[{json.dumps(zone)}]",
        "podSecurityContext.runAsUser=1000",
        'json:securityContext={"seLinuxOptions": {"level": "s0"}}',
    )
    spec = pod_spec(name, *values)
    (process,) = spec["containers"]
    assert {"name": "HTTPS_PROXY", "value": "proxy"} in process["env"]
    assert spec["securityContext"] == {**pod_spec(name)["securityContext"], "runAsUser": 1000}
    before = pod_spec(name)["containers"][0]["securityContext"]
    assert process["securityContext"] == {**before, "seLinuxOptions": {"level": "s0"}}
    labels = find_one(manifests("here"), "Deployment", name)["spec"]["selector"]
    assert spec["topologySpreadConstraints"] == [{**zone, "labelSelector": labels}]
    (default,) = pod_spec(name)["topologySpreadConstraints"]
    assert default["labelSelector"] == labels
    assert default["topologyKey"] == "kubernetes.io/hostname"


def test_null_means_the_default():
    null = {"nodeSelector", "podLabels", "commonLabels", "podSecurityContext", "securityContext"}
    values = [f"{key}=null" for key in sorted({*null, "namespaces", "images.registry"})]
    assert manifests("here", *values) == manifests("here")


class UniqueKeys(yaml.SafeLoader):
    """A loader that refuses an object with the same key twice, as strict parsers of YAML do."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(set(keys)) == len(keys), node.start_mark
        return dict(super().construct_mapping(node, deep))


def test_specific_labels_replace_common_ones():
    metrics = "distributed-input.dev/metrics"
    injected = names.INJECT_LABEL
    common = {"team": "a", "grafana_dashboard": "no", metrics: "no", injected: "no"}
    common["rbac.authorization.k8s.io/aggregate-to-edit"] = "no"
    monitors = ("podMonitor", "serviceMonitor", "prometheusRule")
    values = [
        f"json:commonLabels={json.dumps(common)}",
        "grafanaDashboard.enabled=true",
        *(f"{one}.enabled=true" for one in monitors),
        *(f"{one}.labels.team=b" for one in monitors),
    ]
    text = render("here", *values)
    found = [one for one in yaml.load_all(text, UniqueKeys) if one]

    def labels(kind: str, ending: str) -> dict[str, str]:
        return dict(find_one(found, kind, ending)["metadata"]["labels"])

    assert labels("PrometheusRule", NAME) == labels("ServiceMonitor", NAME)
    assert labels("ServiceMonitor", NAME)["team"] == "b"
    assert labels("PodMonitor", "-trainers")["team"] == "b"
    dashboard = labels("ConfigMap", "-dashboard")
    assert (dashboard["team"], dashboard["grafana_dashboard"]) == ("a", "1")
    assert labels("Service", "-metrics")[metrics] == "operator"
    assert labels("ClusterRole", "-edit")["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert labels("Pod", "-test") == {**common, injected: "true"}


def test_one_process_has_two_ports():
    result = helm("template", RELEASE, CHART, "--set", "webhook.healthPort=9443")
    assert "webhook.port and webhook.healthPort are both 9443" in result.stderr


def test_a_registry_may_end_with_a_slash():
    image = container(OPERATOR, "images.registry=registry.example/mirror/")["image"]
    assert image.startswith("registry.example/mirror/distributed-input-operator:")


def test_a_constraint_with_a_selector_keeps_it():
    selector = {"matchLabels": {"mine": "yes"}}
    zone = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": selector}
    for name in (OPERATOR, WEBHOOK):
        spec = pod_spec(name, f"json:topologySpreadConstraints=[{json.dumps(zone)}]")
        assert spec["topologySpreadConstraints"] == [zone]


@pytest.mark.parametrize(
    ("values", "namespace"),
    [((), "here"), (("namespaced=true",), "here"), (('json:namespaces=["a", "b"]',), "a")],
)
def test_the_chart_is_tested_in_a_namespace_that_it_serves(values, namespace):
    found = [
        one
        for one in yaml.safe_load_all(render("here", *values))
        if one and one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"
    ]
    assert len(found) == 3
    assert {one["metadata"]["namespace"] for one in found} == {namespace}


def test_additional_flags_come_last():
    operator = container(OPERATOR, "extraArgs={--rollout-max-inputs=7}")["args"]
    assert parser().parse_args(operator).rollout_max_inputs == parse_limit("7")
    webhook = container(WEBHOOK, "webhook.extraArgs={--log-level=debug}")["args"]
    assert webhook_parser().parse_args(webhook).log_level == "debug"


def test_service_accounts_that_exist_already():
    values = (
        *("serviceAccount.create=false", "serviceAccount.name=theirs"),
        *("webhook.serviceAccount.create=false", "webhook.serviceAccount.name=hook"),
    )
    found = manifests("here", *values)
    assert "ServiceAccount" not in {one["kind"] for one in found}
    assert pod_spec(OPERATOR, *values)["serviceAccountName"] == "theirs"
    assert pod_spec(WEBHOOK, *values)["serviceAccountName"] == "hook"
    bound = {
        subject["name"]
        for one in found
        if one["kind"].endswith("Binding")
        for subject in one.get("subjects", [])
    }
    assert bound == {"theirs", "hook"}
    policy = find_one(found, "ValidatingAdmissionPolicy", "-writes")["spec"]
    assert ":here:theirs'" in policy["matchConditions"][0]["expression"]


def test_users_roles_include_inputs():
    def roles(*values: str) -> dict[str, Any]:
        marker = "rbac.authorization.k8s.io/aggregate-to-"
        return {
            one["metadata"]["name"].rpartition("-")[2]: (
                {key.removeprefix(marker) for key in one["metadata"]["labels"] if marker in key},
                granted(one),
            )
            for one in manifests("here", *values)
            if any(marker in key for key in one["metadata"].get("labels", {}))
        }

    found = roles()
    assert found["view"][0] == {"view", "edit", "admin"}
    assert {verb for _, _, verb in found["view"][1]} == {"get", "list", "watch"}
    assert found["edit"][0] == {"edit", "admin"}
    resources = {resource for _, resource, _ in found["edit"][1]}
    assert resources == {"distributedinputs", "distributedinputs/scale"}
    assert roles("userRoles.enabled=false") == roles("namespaced=true") == {}


def test_the_pod_monitors_select_the_ports_of_the_data_plane():
    found = manifests("here", "podMonitor.enabled=true", "podMonitor.labels.team=ml")
    monitors = [one for one in found if one["kind"] == "PodMonitor"]
    ports = {
        one["spec"]["selector"]["matchExpressions"][0]["key"]: [
            endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]
        ]
        for one in monitors
    }
    assert ports == {
        names.INPUT_LABEL: [names.METRICS_PORT_NAME],
        names.INJECT_LABEL: [
            names.SIDECAR_METRICS_PORT_NAME,
            names.LOCAL_WORKER_METRICS_PORT_NAME,
        ],
    }
    for one in monitors:
        assert one["metadata"]["labels"]["team"] == "ml"
        assert one["spec"]["namespaceSelector"] == {"any": True}
