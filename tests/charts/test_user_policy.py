"""A user without rights against the rendered chart, on a real API server: inputs lend no rights.

mallory may write inputs and nothing else. alice may create pods and NetworkPolicies, too. Each bob
may create one kind of object that runs pods.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client as kubernetes

from distributed_input.api.resource.merge import merge
from distributed_input_operator.kube.kinds import BY_NAME, INPUT, POLICY
from testing.api_faults.fields import leaves, spec_schema, template
from testing.charts.rendering import CHART, RELEASE, find_one, helm, manifests
from testing.cluster.binaries import binary
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRET = {"valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
CODE = {
    "type": "EntryPoint",
    "entryPoint": {
        "function": "code:make",
        "source": {"type": "ConfigMap", "configMap": {"name": "theirs"}},
    },
}


def an_input(name: str, **spec: Any) -> dict[str, Any]:
    """Return an input without encryption. By default, its trainer sends the dataset."""
    meta, spec = {"name": name}, {"encryption": "None", **spec}
    return {"apiVersion": INPUT.api_version, "kind": INPUT.kind, "metadata": meta, "spec": spec}


POD, WORKER = "workers.template.spec", "workers.template.spec.containers[worker]"
ATTACKS: dict[str, dict[str, Any]] = {
    "dataset.entryPoint.function": {
        "dataset": {"type": "EntryPoint", "entryPoint": {"function": "os:system"}}
    },
    "dataset.entryPoint.source.configMap": {"dataset": CODE},
    "workers.template.metadata": {"workers": {"template": {"metadata": {"labels": {"a": "b"}}}}},
    f"{POD}.hostNetwork": template({"hostNetwork": True}),
    f"{POD}.securityContext": template({"securityContext": None}),  # it would remove the default
    f"{POD}.serviceAccountName": template({"serviceAccountName": "powerful"}),
    f"{POD}.volumes": template({"volumes": [{"name": "s", "secret": {"secretName": "db"}}]}),
    f"{POD}.nodeSelector": template({"nodeSelector": {"pool": "control-plane"}}),
    f"{POD}.tolerations": template({"tolerations": [{"operator": "Exists"}]}),
    f"{POD}.priorityClassName": template({"priorityClassName": "system-node-critical"}),
    f"{POD}.containers": template({"containers": [{"name": "miner", "image": "miner:1"}]}),
    f"{WORKER}.image": template(image="miner:1"),
    f"{WORKER}.command": template(command=["sh"]),
    f"{WORKER}.volumeMounts": template(volumeMounts=[{"name": "token", "mountPath": "/t"}]),
    f"{WORKER}.env": template(env=[{"name": "A", **SECRET}]),
    f"{WORKER}.resources.claims": template(resources={"claims": [{"name": "gpu"}]}),
    f"{WORKER}.resources.limits[nvidia.com/gpu]": template(
        resources={"limits": {"nvidia.com/gpu": 1}}
    ),
    f"{WORKER}.resources.requests[hugepages-2Mi]": template(
        resources={"requests": {"hugepages-2Mi": "4Mi"}}
    ),
    "dispatcher.nodeSelector": {"dispatcher": {"nodeSelector": {"pool": "control-plane"}}},
    "dispatcher.tolerations": {"dispatcher": {"tolerations": [{"operator": "Exists"}]}},
    "dispatcher.priorityClassName": {"dispatcher": {"priorityClassName": "system-node-critical"}},
    "workers.accelerator": {"workers": {"accelerator": {"resourceName": "nvidia.com/gpu"}}},
    "workers.stateDirectory": {"workers": {"stateDirectory": "/states"}},
    "store.claimName": {"store": {"claimName": "theirs"}},
    "workers.placement": {"workers": {"placement": "NearTrainers"}},
    "workers.spot": {"workers": {"spot": True}},
    "dispatcher.resources.limits[nvidia.com/gpu]": {
        "dispatcher": {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    },
    "dispatcher.resources.requests[nvidia.com/gpu]": {
        "dispatcher": {"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": 1}}}
    },
    "sidecar.resources.limits[nvidia.com/gpu]": {
        "sidecar": {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    },
    "sidecar.resources.requests[nvidia.com/gpu]": {
        "sidecar": {"resources": {"requests": {"nvidia.com/gpu": 1}}}
    },
    "tfDataService.resources.limits[nvidia.com/gpu]": {
        "tfDataService": {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    },
    "tfDataService.resources.requests[nvidia.com/gpu]": {
        "tfDataService": {"resources": {"requests": {"nvidia.com/gpu": 1}}}
    },
    "sidecar.image": {"sidecar": {"image": "spy:1"}},
    "dispatcher.image": {"dispatcher": {"image": "spy:1"}},
    "tfDataService.journal": {
        "tfDataService": {"journal": {"persistentVolumeClaim": {"claimName": "theirs"}}}
    },
    "networkPolicy": {"networkPolicy": "Open"},
    "dispatcher.port": {"dispatcher": {"port": 5432}},
    "tfDataService.port": {"tfDataService": {"port": 5433}},
}
"""What mallory tries, by the field that the refusal names."""

HARMLESS = frozenset(
    # What the pods compute, and how fast: with the image, the code and the rights that they have.
    "dataset.type dataset.entryPoint.args dataset.entryPoint.source.type "
    "dataset.entryPoint.source.path processingMode "
    "numSplits partitions seed epochs batching.globalBatchSize batching.remainder "
    "determinism badRecords.onError badRecords.maxPerSplit badRecords.maxPercent "
    "badRecords.sources badRecords.exclude.step badRecords.exclude.index badRecords.exclude.file "
    "badRecords.exclude.split badRecords.exclude.epoch badRecords.exclude.source "
    "mixture.weights mixture.onExhausted mixture.schedule.step mixture.schedule.weights "
    "packing.length packing.method packing.openSequences packing.balanceWindow "
    "sidecar.readAhead sidecar.timeoutSeconds sidecar.transfer suspend "
    "tfDataService.staticSharding workers.template.spec.terminationGracePeriodSeconds "
    # Numbers of pods, CPU and memory, which quotas and InputPolicies limit.
    "workers.replicas workers.autoscaling.minReplicas workers.autoscaling.maxReplicas "
    "workers.autoscaling.paused workers.autoscaling.stabilizationWindowSeconds "
    "workers.autoscaling.idleTTLSeconds workers.local.cpus workers.local.memory "
    "workers.parallelism sidecar.buffer store.size tfDataService.crossTrainerCache "
    # What an input declares about its trainers, which InputPolicies limit.
    "trainers.accelerator trainers.acceleratorsPerTrainer trainers.weight trainers.priority "
    "trainers.priorityClass "
    # Immutable: no user can weaken an input that exists.
    "encryption managedBy".split()
)
"""Fields that need no right."""

POD_CREATORS = [
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
]


@pytest.fixture(scope="module")
def cluster(api: kubernetes.ApiClient, control_plane) -> Iterator[Cluster]:
    """Create a namespace, and install the chart in it."""
    created = Cluster(api, f"users-{uuid.uuid4().hex[:8]}")
    created.call("POST", "/api/v1/namespaces", {"metadata": {"name": created.namespace}})
    place = ("--namespace", created.namespace, "--kubeconfig", control_plane.kubeconfig)
    # Other tests may have installed the definitions, which only one release can own.
    definitions = ("apply", "--server-side", "--force-conflicts", "-f", f"{CHART.parents[1]}/crds")
    kubectl = [str(binary("kubectl")), f"--kubeconfig={control_plane.kubeconfig}", *definitions]
    subprocess.run(kubectl, check=True, capture_output=True, timeout=60)
    result = helm("install", RELEASE, CHART, *place, "--set", "crds.enabled=false")
    assert result.returncode == 0, result.stderr
    eventually(lambda: all("items" in served(created, kind.path(None)) for kind in (INPUT, POLICY)))
    yield created
    result = helm("uninstall", RELEASE, *place)
    assert result.returncode == 0, result.stderr
    created.call("DELETE", f"/api/v1/namespaces/{created.namespace}")


def served(cluster: Cluster, path: str) -> dict[str, Any]:
    """Return a list, or nothing if the API server does not serve its kind yet."""
    try:
        return cluster.call("GET", path)
    except RequestRejected:
        return {}


def user(control_plane, cluster: Cluster, name: str, *rights: tuple[str, str]) -> Cluster:
    """Return requests of a user who may do everything with these (group, resource).

    Wait until the API server knows the rights, which are in one role.
    """
    rights = (
        ("distributed-input.dev", "distributedinputs"),
        ("distributed-input.dev", "distributedinputs/scale"),
        *rights,
    )
    role = {
        "metadata": {"name": name},
        "rules": [{"apiGroups": [g], "resources": [r], "verbs": ["*"]} for g, r in rights],
    }
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    path = f"{RBAC}/namespaces/{cluster.namespace}"
    cluster.call("POST", f"{path}/roles", role)
    cluster.call("POST", f"{path}/rolebindings", binding)
    api = control_plane.client()
    api.set_default_header("Impersonate-User", name)
    created = Cluster(api, cluster.namespace)

    def may_write_inputs() -> bool:
        try:
            created.create(an_input("probe"), dryRun="All")
        except RequestRejected as error:
            if error.status != 403:
                raise
            return False
        return True

    eventually(may_write_inputs)
    return created


@pytest.fixture(scope="module")
def mallory(admission_policies: None, control_plane, cluster) -> Cluster:
    """Wait until the API server enforces the policy."""
    created = user(control_plane, cluster, "mallory")

    def is_enforced() -> bool:
        try:
            created.create(an_input("probe", networkPolicy="Open"), dryRun="All")
        except RequestRejected as error:
            return "spec.networkPolicy" in str(error)
        return False

    eventually(is_enforced)
    return created


@pytest.fixture(scope="module")
def alice(control_plane, cluster, mallory) -> Cluster:
    network_policies = ("networking.k8s.io", "networkpolicies")
    return user(control_plane, cluster, "alice", ("", "pods"), network_policies)


@pytest.mark.parametrize("field", ATTACKS)
def test_a_user_without_the_right_is_refused_with_the_field_and_the_remedy(mallory, field):
    with pytest.raises(RequestRejected) as caught:
        mallory.create(an_input("attack", **ATTACKS[field]), dryRun="All")
    message = str(caught.value)
    what = "pods" if "pods of an input" in message else "networkpolicies"
    assert caught.value.status == 403
    assert f"spec.{field}" in message
    assert f"mallory may not create {what} in namespace {mallory.namespace}" in message
    assert f"ask for the right to create {what}, as in the role edit" in message


@pytest.mark.parametrize("field", ATTACKS)
def test_a_user_with_the_right_is_not_refused(alice, field):
    alice.create(an_input("allowed", **ATTACKS[field]), dryRun="All")


@pytest.mark.parametrize(("group", "resource"), POD_CREATORS)
def test_a_user_who_may_run_pods_in_another_way_may_describe_pods(
    control_plane, cluster, mallory, group, resource
):
    name = f"bob-{resource}"
    bob = user(control_plane, cluster, name, (group, resource))
    for field in (f"{WORKER}.image", "workers.spot", f"{WORKER}.resources.limits[nvidia.com/gpu]"):
        bob.create(an_input("described", **ATTACKS[field]), dryRun="All")
    with pytest.raises(RequestRejected, match=rf"spec\.networkPolicy: {name} may not create netw"):
        bob.create(an_input("described", networkPolicy="Open"), dryRun="All")


def test_a_plain_input_needs_no_other_right(mallory):
    plain = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    resources = {"requests": plain, "limits": plain}
    workers = {"replicas": 2, "placement": "Anywhere", "spot": False}
    workers |= template({"terminationGracePeriodSeconds": 30}, resources=resources)["workers"]
    dispatcher = {"port": 7070, "resources": resources}
    spec = {"workers": workers, "dispatcher": dispatcher, "networkPolicy": "Restricted", "seed": 3}
    mallory.create(an_input("plain", sidecar={"resources": resources}, **spec))
    mallory.patch("DistributedInput", "plain", {"spec": template({"containers": None})})
    mallory.delete("DistributedInput", "plain")


def test_an_existing_input_keeps_what_it_has(alice, mallory):
    """Only a change of a checked field needs the right. So an upgrade refuses no later change."""
    checked: dict[str, Any] = {}
    for spec in ATTACKS.values():
        checked = merge(checked, spec)
    containers = checked["workers"]["template"]["spec"]["containers"]

    def with_worker(**fields: Any) -> dict[str, Any]:
        changed = merge(containers, [{"name": "worker", **fields}], "containers")
        return template({"containers": changed})

    del checked["tfDataService"]  # The API server refuses it together with networkPolicy: Open.
    alice.create(an_input("early", **checked))
    for change in (
        {"suspend": True},
        {"epochs": 3},
        {"dataset": {"entryPoint": {"args": {"a": 1}}}},
        {"trainers": {"priority": -1}},
        {"workers": {"replicas": 3}},
        with_worker(resources={"requests": {"cpu": "2"}}),
    ):
        mallory.patch("DistributedInput", "early", {"spec": change})
    mallory.patch("DistributedInput", "early", {"spec": {"replicas": 2}}, "scale")
    mallory.patch("DistributedInput", "early", {"metadata": {"labels": {"a": "b"}}})
    for refused, field in (
        ({"dataset": {"entryPoint": {"function": "evil:make"}}}, "dataset.entryPoint.function"),
        (template({"serviceAccountName": "root"}), f"{POD}.serviceAccountName"),
        ({"workers": {"placement": "Dedicated"}}, "workers.placement"),
        (with_worker(image="evil:1"), f"{WORKER}.image"),
        (with_worker(args=["evil"]), f"{WORKER}.args"),
        (
            with_worker(resources={"requests": {"hugepages-2Mi": "8Mi"}}),
            f"{WORKER}.resources.requests[hugepages-2Mi]",
        ),
        ({"dispatcher": {"port": 5434}}, "dispatcher.port"),
    ):
        with pytest.raises(RequestRejected, match=f"spec.{re.escape(field)}: mallory may not"):
            mallory.patch("DistributedInput", "early", {"spec": refused})
    # Without these fields, an input has no more than the default.
    mallory.patch("DistributedInput", "early", {"spec": {"networkPolicy": None}})
    mallory.patch(
        "DistributedInput", "early", {"spec": {"workers": {"template": {"metadata": None}}}}
    )
    with pytest.raises(RequestRejected, match=r"spec\.networkPolicy: mallory may not"):
        mallory.patch("DistributedInput", "early", {"spec": {"networkPolicy": "Open"}})
    mallory.delete("DistributedInput", "early")


def test_null_is_a_value_because_it_removes_what_the_operator_sets(mallory):
    limits = {"limits": {"memory": "1Gi"}}
    created = mallory.create(an_input("hardened", **template(resources=limits)))
    path = BY_NAME["DistributedInput"].path(mallory.namespace, "hardened")
    created["spec"] |= template(resources=limits, securityContext=None)
    field = re.escape(f"spec.{WORKER}.securityContext")
    with pytest.raises(RequestRejected, match=f"{field}: mallory may not"):
        mallory.call("PUT", path, created)
    mallory.delete("DistributedInput", "hardened")


def test_an_existing_input_keeps_its_tf_data_service(alice, mallory):
    port, journal = (ATTACKS[f"tfDataService.{one}"] for one in ("port", "journal"))
    service = {**port["tfDataService"], **journal["tfDataService"]}
    alice.create(an_input("served", tfDataService=service))
    mallory.patch("DistributedInput", "served", {"spec": {"suspend": True}})
    with pytest.raises(RequestRejected, match=r"spec\.tfDataService\.port: mallory may not"):
        mallory.patch("DistributedInput", "served", {"spec": {"tfDataService": {"port": 5434}}})
    mallory.delete("DistributedInput", "served")


def test_the_policy_limits_all_users_of_the_api(mallory):
    """Also those who apply on the server side, and those who replace an object."""
    path = BY_NAME["DistributedInput"].path(mallory.namespace, "applied")
    body = an_input("applied", **ATTACKS[f"{WORKER}.image"])
    with pytest.raises(RequestRejected, match=re.escape(f"spec.{WORKER}.image: mallory may not")):
        mallory.call(
            "PATCH", path, body, "application/apply-patch+yaml", fieldManager="t", force="true"
        )


def variables(*options: str) -> str:
    """Return the expressions that find the checked fields."""
    policy = find_one(manifests("here", *options), "ValidatingAdmissionPolicy", "-users")
    return str(policy["spec"]["variables"])


def test_each_field_is_checked_or_harmless():
    """Decide for each new field of the spec whether users need a right to set it."""
    fields = {".".join(path) for path, _ in leaves(spec_schema())}
    checked = {field.split("[")[0] for field in ATTACKS}
    by_policy = {one for one in fields if any(f"{one}.".startswith(f"{c}.") for c in checked)}
    assert by_policy | HARMLESS == fields
    assert not by_policy & HARMLESS


def test_each_field_that_the_policy_checks_is_tried():
    checked = set(re.findall(r"'spec\.([\w.\[\]]+)", variables()))
    for prefix in checked:
        assert any(field.startswith(prefix) for field in ATTACKS), prefix
    for field in ATTACKS:
        assert any(field.startswith(prefix) for prefix in checked), field


@pytest.mark.parametrize("field", ["spec.workers.spot", "spec.sidecar.resources.limits"])
def test_an_administrator_can_make_exceptions(field):
    assert f"'{field}" in variables()
    with_exception = variables(f'json:admissionPolicy.uncheckedFields=["{field}"]')
    assert f"'{field}" not in with_exception
    assert "'spec.workers.accelerator'" in with_exception


def test_a_field_of_the_pod_template_can_be_an_exception():
    excepted = variables(f'json:admissionPolicy.uncheckedFields=["spec.{WORKER}.resources"]')
    assert f".filter(field, !(field == 'spec.{WORKER}.resources'" in excepted
    assert f"|| field.startsWith('spec.{WORKER}.resources[')))" in excepted
