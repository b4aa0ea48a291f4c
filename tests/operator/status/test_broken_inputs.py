"""Ways to break an input: the table of docs/status.md, measured.

`pytest -s tests/operator/status/test_broken_inputs.py` prints the rows. There is no kubelet: the
tests write the pod status that a kubelet, or the node controller, would write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from distributed_input_operator.kube.kinds import INPUT, POLICY
from testing.cluster.kubectl import Kubectl
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.gitops import CURRENT, argocd_health, kstatus, kubectl_sees_ready
from testing.operator.policies import apply_policy
from testing.operator.processes import eventually, manifest, template

_SECONDS = 10.0
"""Limit of what docs/status.md promises: longer than the measured times, for a busy machine."""
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_ADMISSION = {
    "ValidatingAdmissionPolicy": f"{_GROUP}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_GROUP}/validatingadmissionpolicybindings",
}
_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image mine:2"}}
_CRASH = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
_ENDED = {"terminated": {"exitCode": 1, "message": "ImportError: no module digits\n"}}


class Broken(NamedTuple):
    """What users see of a broken input."""

    reason: str
    """Of the condition Ready."""
    kstatus: str = "InProgress"
    argocd: str = "Progressing"
    condition: str = ""
    """Another condition, which has the cause."""


@pytest.fixture
def observe(cluster: Cluster, control_plane, request: pytest.FixtureRequest, name: str) -> Any:
    """Return a function that waits for what users see, and checks that it is never "ready"."""

    def wait(expected: Broken, broken_at: float) -> dict[str, Any]:
        def reported() -> dict[str, Any]:
            found = cluster.get(INPUT.kind, name)
            assert found
            # Before the operator sees the change, the generation is not observed.
            assert kstatus(found) != CURRENT
            ready = conditions_of(found).get("Ready", {})
            return found if ready.get("reason") == expected.reason else {}

        found = eventually(reported, every=0.02)
        seconds = time.monotonic() - broken_at
        conditions = conditions_of(found)
        assert conditions["Ready"]["status"] == "False"
        assert (kstatus(found), argocd_health(found)[0]) == (expected.kstatus, expected.argocd)
        assert expected.condition in ("", *conditions)
        kubectl = Kubectl(control_plane.kubeconfig, cluster.namespace)
        row = kubectl("get", "dinput", name, "--no-headers").split()
        assert row[1] == "False"
        assert expected.reason in row
        assert not kubectl_sees_ready(control_plane.kubeconfig, cluster.namespace, name)
        reason = conditions.get(expected.condition, {}).get("reason", "")
        events = eventually(lambda: events_with(cluster, name, reason)) if reason else []
        print(
            f"\n{request.node.name}: {seconds:.1f} s; {' '.join(row)}; kstatus {kstatus(found)}; "
            f"Argo CD {argocd_health(found)[0]}; Events {events}; {conditions['Ready']['message']}"
        )
        assert seconds < _SECONDS
        return found

    return wait


def events_with(cluster: Cluster, name: str, reason: str) -> list[str]:
    """Return the reasons of an input's Events, if they include `reason`."""
    found = [
        one["reason"] for one in cluster.list("Event") if one["involvedObject"]["name"] == name
    ]
    return found if reason in found else []


def conditions_of(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the conditions of an input by type."""
    return {one["type"]: one for one in obj["status"].get("conditions", [])}


def serve(cluster: Cluster, name: str, **spec: Any) -> None:
    """Create an input and wait until it is ready with one worker."""
    cluster.create(manifest(name, **spec))
    cluster.wait_until_ready(name, 1)


def change(cluster: Cluster, name: str, **workers: Any) -> float:
    """Change the workers of an input. Return the time."""
    cluster.patch(INPUT.kind, name, {"spec": {"workers": workers}})
    return time.monotonic()


def newest_pod(cluster: Cluster, name: str, image: str) -> str:
    """Wait for a worker with this image and return its name."""

    def find() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in cluster.pods(name)
            if pod["spec"]["containers"][0]["image"] == image
        ]

    return eventually(find)[0]


def report_container(cluster: Cluster, pod: str, state: Any, last: Any = None) -> float:
    """Write the state of a pod's container, as the kubelet does. Return the time."""
    container = {
        "name": "worker",
        "image": "mine:2",
        "imageID": "",
        "ready": False,
        "restartCount": 4,
        "state": state,
        "lastState": last or {},
    }
    cluster.set_pod_status(pod, {"containerStatuses": [container]})
    return time.monotonic()


@contextmanager
def quota(cluster: Cluster) -> Iterator[None]:
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    meta = {"name": "tight"}
    hard = {"requests.cpu": "1"}
    cluster.call(
        "POST",
        path,
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}},
    )
    try:
        yield
    finally:
        cluster.call("DELETE", f"{path}/tight")


@contextmanager
def pod_security(cluster: Cluster) -> Iterator[None]:
    path, label = f"/api/v1/namespaces/{cluster.namespace}", "pod-security.kubernetes.io/enforce"
    kind = "application/merge-patch+json"
    cluster.call("PATCH", path, {"metadata": {"labels": {label: "restricted"}}}, kind)
    try:
        yield
    finally:
        cluster.call("PATCH", path, {"metadata": {"labels": {label: None}}}, kind)


@contextmanager
def admission_policy(cluster: Cluster, image: str) -> Iterator[None]:
    """Refuse Deployments with an image, by a ValidatingAdmissionPolicy."""
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    expression = f"object.spec.template.spec.containers.all(c, c.image != '{image}')"
    validation = {"expression": expression, "message": "this image is not allowed"}
    policy = f"images-{cluster.namespace}"
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}}
    specs = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{**validation, "reason": "Forbidden"}],
        },
        "ValidatingAdmissionPolicyBinding": {
            "policyName": policy,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": namespace},
        },
    }
    for kind, spec in specs.items():
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
        cluster.call("POST", _ADMISSION[kind], {**body, "metadata": {"name": policy}, "spec": spec})
    try:
        eventually(lambda: _is_refused(cluster, image))
        yield
    finally:
        for path in _ADMISSION.values():
            cluster.call("DELETE", f"{path}/{policy}")


def _is_refused(cluster: Cluster, image: str) -> bool:
    """Return whether the API server refuses a Deployment with this image."""
    labels = {"app": "try"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": image}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "try"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    try:
        cluster.create(body, dryRun="All")
    except RequestRejected as error:
        return "not allowed" in str(error)
    return False


def test_a_bad_image(cluster, name, observe):
    serve(cluster, name)
    change(cluster, name, **template(image="mine:2"))
    pod = newest_pod(cluster, name, "mine:2")
    broken_at = report_container(cluster, pod, _IMAGE)
    found = observe(Broken("PodsFailing", condition="PodsFailing"), broken_at)
    assert found["status"]["workers"]["ready"] == 1, "the old worker runs"


def test_a_crash_loop(cluster, name, observe):
    cluster.create(manifest(name, workers=template(image="mine:2")))
    pod = newest_pod(cluster, name, "mine:2")
    broken_at = report_container(cluster, pod, _CRASH, _ENDED)
    found = observe(Broken("PodsFailing", condition="PodsFailing"), broken_at)
    assert "ImportError: no module digits" in argocd_health(found)[1]


def test_a_quota(cluster, name, observe):
    serve(cluster, name)
    with quota(cluster):
        broken_at = change(cluster, name, **template(resources={"requests": {"cpu": 64}}))
        observe(Broken("QuotaExceeded", condition="QuotaExceeded"), broken_at)


def test_pod_security(cluster, name, observe):
    serve(cluster, name)
    with pod_security(cluster):
        broken_at = change(cluster, name, **template({"hostNetwork": True}))
        found = observe(Broken("PodsRefused", condition="PodsRefused"), broken_at)
        assert "violates PodSecurity" in argocd_health(found)[1]


def test_a_missing_config_map(cluster, name, observe):
    source = {"type": "ConfigMap", "configMap": {"name": f"{name}-code"}}
    dataset = {"type": "EntryPoint", "entryPoint": {"function": "a:b", "source": source}}
    broken_at = time.monotonic()
    cluster.create(manifest(name, dataset=dataset))
    observe(Broken("CodeMissing", condition="Applied"), broken_at)


def test_a_spec_that_an_admission_policy_refuses(admission_policies, cluster, name, observe):
    serve(cluster, name)
    with admission_policy(cluster, "mine:2"):
        broken_at = change(cluster, name, **template(image="mine:2"))
        found = observe(Broken("Refused", "Failed", "Degraded", "Applied"), broken_at)
        assert "this image is not allowed" in argocd_health(found)[1]


def test_a_pod_template_that_the_api_server_refuses(cluster, name, observe):
    serve(cluster, name)
    broken_at = change(cluster, name, **template(ports=[{"containerPort": -1}]))
    observe(Broken("Refused", "Failed", "Degraded", "Applied"), broken_at)


def test_a_spec_that_only_the_operator_can_check(cluster, name, observe):
    serve(cluster, name)
    broken_at = time.monotonic()
    entry = {"function": "a:b", "args": {"not a word": 1}}
    dataset = {"type": "EntryPoint", "entryPoint": entry}
    cluster.patch(INPUT.kind, name, {"spec": {"dataset": dataset}})
    observe(Broken("InvalidSpec", "Failed", "Degraded"), broken_at)


def test_no_node_for_a_pod(cluster, name, observe):
    serve(cluster, name)
    broken_at = change(cluster, name, **template({"nodeSelector": {"disk": "none"}}))
    observe(Broken("Unschedulable", condition="Unschedulable"), broken_at)


def test_a_lost_node(cluster, name, observe):
    """The node controller reports the pods of a lost node as not ready."""
    serve(cluster, name)
    pod = cluster.pods(name)[0]["metadata"]["name"]
    lost = {"conditions": [{"type": "Ready", "status": "False"}]}
    broken_at = time.monotonic()
    cluster.set_pod_status(pod, lost)
    eventually(lambda: cluster.condition(name, "Ready")["status"] == "False")
    observe(Broken("WorkersStarting"), broken_at)


def test_a_rollout_without_progress(cluster, name, observe):
    serve(cluster, name)
    cluster.patch("Deployment", f"{name}-worker", {"spec": {"progressDeadlineSeconds": 2}})
    change(cluster, name, **template(image="mine:2"))
    pod = newest_pod(cluster, name, "mine:2")
    broken_at = report_container(cluster, pod, _IMAGE)
    eventually(lambda: cluster.condition(name, "Stalled")["status"] == "True")
    observe(Broken("PodsFailing", "Failed", "Degraded", "PodsFailing"), broken_at)


def test_a_change_without_an_operator(cluster, control_plane, operator, name):
    serve(cluster, name)
    assert operator.stop() == 0
    try:
        change(cluster, name, **template(image="mine:2"))
        found = cluster.get(INPUT.kind, name)
        assert conditions_of(found)["Ready"]["status"] == "True", "it is about the spec before"
        assert (kstatus(found), argocd_health(found)[0]) == ("InProgress", "Progressing")
        assert not kubectl_sees_ready(control_plane.kubeconfig, cluster.namespace, name)
    finally:
        operator.restart()
    newest_pod(cluster, name, "mine:2")
    cluster.wait_until_ready(name, 1)
    eventually(lambda: kstatus(cluster.get(INPUT.kind, name)) == CURRENT)


def test_a_policy_that_a_new_leader_cannot_use(cluster, operator, name):
    """The input keeps its workers, gets no more of them, and says why."""
    serve(cluster, name)
    assert operator.stop() == 0
    # As floating-point numbers, which the API server compares, both are equal.
    high, low = ({"resources": {"a/b": f"900719925474099{last}"}} for last in (3, 2))
    apply_policy(cluster, {"name": "all", "guaranteed": high, "limits": low})
    try:
        operator.restart()
        broken_at = change(cluster, name, replicas=3)
        limited = eventually(lambda: cluster.condition(name, "ScalingLimited"))
        print(f"\nunusable policy: {time.monotonic() - broken_at:.1f} s; {limited}")
        assert limited["reason"] == "PolicyUnusable"
        found = cluster.call("GET", POLICY.path(None, "cluster"))
        ready = {one["type"]: one for one in found["status"]["conditions"]}["Ready"]
        assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
        assert "is greater than limits.resources.a/b" in ready["message"]
        eventually(lambda: kstatus(cluster.get(INPUT.kind, name)) == CURRENT)
        assert len(cluster.pods(name)) == 1
    finally:
        cluster.call("DELETE", POLICY.path(None, "cluster"))
    cluster.wait_until_ready(name, 3)


def test_no_trainer(cluster, name):
    """An input without trainers is not broken."""
    serve(cluster, name)
    found = cluster.get(INPUT.kind, name)
    assert kstatus(found) == CURRENT
    assert conditions_of(found)["Ready"]["reason"] == "Serving"
    assert "trainers" not in found["status"]
