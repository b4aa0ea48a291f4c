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

from distributed_input_operator.kube.kinds import BY_NAME, INPUT, POLICY
from testing.api_faults.fields import leaves, spec_schema
from testing.charts.rendering import CHART, RELEASE, find_one, helm, manifests
from testing.cluster.binaries import binary
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRET = {"valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
CODE = {"entryPoint": "code:make", "source": {"configMap": "theirs"}}


def an_input(name: str, **spec: Any) -> dict[str, Any]:
    """Return an input without encryption. By default, its trainer sends the dataset."""
    meta, spec = {"name": name}, {"encryption": "None", **spec}
    return {"apiVersion": INPUT.api_version, "kind": INPUT.kind, "metadata": meta, "spec": spec}


ATTACKS: dict[str, dict[str, Any]] = {
    "dataset.entryPoint": {
        "dataset": {"type": "EntryPoint", "entryPoint": {"function": "os:system"}}
    },
    "dataset.source.configMap": {"dataset": CODE},
    "workers.image": {
        "workers": {"template": {"spec": {"containers": [{"name": "worker", "image": "miner:1"}]}}}
    },
    "workers.serviceAccountName": {
        "workers": {"template": {"spec": {"serviceAccountName": "powerful"}}}
    },
    "workers.podTemplate": {"workers": {"podTemplate": {"spec": {"hostNetwork": True}}}},
    "workers.volumes": {
        "workers": {
            "template": {"spec": {"volumes": [{"name": "s", "secret": {"secretName": "db"}}]}}
        }
    },
    "workers.volumeMounts": {
        "workers": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "worker", "volumeMounts": [{"name": "token", "mountPath": "/t"}]}
                    ]
                }
            }
        }
    },
    "workers.env": {
        "workers": {
            "template": {
                "spec": {"containers": [{"name": "worker", "env": [{"name": "A", **SECRET}]}]}
            }
        }
    },
    "workers.nodeSelector": {
        "workers": {"template": {"spec": {"nodeSelector": {"pool": "control-plane"}}}}
    },
    "workers.tolerations": {
        "workers": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}
    },
    "workers.priorityClassName": {
        "workers": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}
    },
    "dispatcher.nodeSelector": {"dispatcher": {"nodeSelector": {"pool": "control-plane"}}},
    "dispatcher.tolerations": {"dispatcher": {"tolerations": [{"operator": "Exists"}]}},
    "dispatcher.priorityClassName": {"dispatcher": {"priorityClassName": "system-node-critical"}},
    "workers.accelerator": {"workers": {"accelerator": {"resourceName": "nvidia.com/gpu"}}},
    "workers.stateDirectory": {"workers": {"stateDirectory": "/states"}},
    "workers.placement": {"workers": {"placement": "NearTrainers"}},
    "workers.spot": {"workers": {"spot": True}},
    "workers.resources.limits[nvidia.com/gpu]": {
        "workers": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "worker", "resources": {"limits": {"nvidia.com/gpu": 1}}}
                    ]
                }
            }
        }
    },
    "workers.resources.requests[hugepages-2Mi]": {
        "workers": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "worker", "resources": {"requests": {"hugepages-2Mi": "4Mi"}}}
                    ]
                }
            }
        }
    },
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
    "dataset.args dataset.source.path dataset.source.image dataset.fromTrainer processingMode "
    "numSplits partitions seed epochs batching.globalBatchSize batching.remainder order "
    "determinism sidecar.readAhead sidecar.timeoutSeconds sidecar.transfer suspend "
    "tfDataService.staticSharding workers.terminationGracePeriodSeconds "
    # Numbers of pods, CPU and memory, which quotas and InputPolicies limit.
    "workers.replicas workers.autoscaling.minReplicas workers.autoscaling.maxReplicas "
    "workers.autoscaling.paused workers.autoscaling.stabilizationWindowSeconds "
    "workers.autoscaling.idleTTLSeconds workers.local.cpus workers.local.memory "
    "workers.parallelism sidecar.buffer tfDataService.crossTrainerCache "
    # What an input declares about its trainers, which InputPolicies limit.
    "trainers.accelerator trainers.acceleratorsPerTrainer trainers.weight trainers.priority "
    "trainers.priorityClass "
    # Immutable: no user can weaken an input that exists.
    "encryption operatorClass".split()
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
    for field in ("workers.image", "workers.spot", "workers.resources.limits[nvidia.com/gpu]"):
        bob.create(an_input("described", **ATTACKS[field]), dryRun="All")
    with pytest.raises(RequestRejected, match=rf"spec\.networkPolicy: {name} may not create netw"):
        bob.create(an_input("described", networkPolicy="Open"), dryRun="All")


def test_a_plain_input_needs_no_other_right(mallory):
    plain = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    resources = {"requests": plain, "limits": plain}
    workers = {"replicas": 2, "placement": "Anywhere", "spot": False, "resources": resources}
    dispatcher = {"port": 7070, "resources": resources}
    spec = {"workers": workers, "dispatcher": dispatcher, "networkPolicy": "Restricted", "seed": 3}
    mallory.create(an_input("plain", sidecar={"resources": resources}, **spec))
    mallory.patch(
        "DistributedInput",
        "plain",
        {
            "spec": {
                "workers": {
                    "template": {"spec": {"containers": [{"name": "worker", "resources": None}]}}
                }
            }
        },
    )
    mallory.delete("DistributedInput", "plain")


def test_an_existing_input_keeps_what_it_has(alice, mallory):
    """Only a change of a checked field needs the right. So an upgrade refuses no later change."""
    checked: dict[str, Any] = {}
    for spec in ATTACKS.values():
        for section, value in spec.items():
            before = checked.get(section)
            checked[section] = {**before, **value} if isinstance(before, dict) else value
    del checked["tfDataService"]  # The API server refuses it together with networkPolicy: false.
    alice.create(an_input("early", **checked))
    for change in (
        {"suspend": True},
        {"epochs": 3},
        {"dataset": {"args": {"a": 1}}},
        {"trainers": {"priority": -1}},
        {
            "workers": {
                "replicas": 3,
                "template": {
                    "spec": {
                        "containers": [{"name": "worker", "resources": {"requests": {"cpu": "2"}}}]
                    }
                },
            }
        },
    ):
        mallory.patch("DistributedInput", "early", {"spec": change})
    mallory.patch("DistributedInput", "early", {"spec": {"replicas": 2}}, "scale")
    mallory.patch("DistributedInput", "early", {"metadata": {"labels": {"a": "b"}}})
    for refused, field in (
        (
            {"dataset": {"type": "EntryPoint", "entryPoint": {"function": "evil:make"}}},
            r"dataset\.entryPoint",
        ),
        (
            {"workers": {"template": {"spec": {"serviceAccountName": "root"}}}},
            r"workers\.serviceAccountName",
        ),
        ({"workers": {"placement": "Dedicated"}}, r"workers\.placement"),
        (
            {
                "workers": {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "worker",
                                    "resources": {"requests": {"hugepages-2Mi": "8Mi"}},
                                }
                            ]
                        }
                    }
                }
            },
            r"workers\.resources\.requests\[hugepages-2Mi\]",
        ),
        ({"dispatcher": {"port": 5434}}, r"dispatcher\.port"),
    ):
        with pytest.raises(RequestRejected, match=rf"spec\.{field}: mallory may not"):
            mallory.patch("DistributedInput", "early", {"spec": refused})
    # Without these fields, an input has no more than the default.
    mallory.patch("DistributedInput", "early", {"spec": {"networkPolicy": None}})
    mallory.patch("DistributedInput", "early", {"spec": {"workers": {"podTemplate": None}}})
    with pytest.raises(RequestRejected, match=r"spec\.networkPolicy: mallory may not"):
        mallory.patch("DistributedInput", "early", {"spec": {"networkPolicy": "Open"}})
    mallory.delete("DistributedInput", "early")


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
    body = an_input("applied", **ATTACKS["workers.image"])
    with pytest.raises(RequestRejected, match=r"spec\.workers\.image: mallory may not"):
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
    checked = re.findall(r"'spec\.([\w.]+)", variables())
    assert set(checked) == {field.split("[")[0] for field in ATTACKS}


@pytest.mark.parametrize(
    "field", ["spec.workers.env", "spec.workers.spot", "spec.sidecar.resources.limits"]
)
def test_an_administrator_can_make_exceptions(field):
    assert f"'{field}" in variables()
    with_exception = variables(f'json:admissionPolicy.uncheckedFields=["{field}"]')
    assert f"'{field}" not in with_exception
    assert "'spec.workers.volumes'" in with_exception
