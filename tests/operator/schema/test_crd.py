"""Validation by the CRD: each rule with a valid and an invalid manifest. Also kubectl."""

from __future__ import annotations

import subprocess

import pytest

from testing.cluster.binaries import binary
from testing.operator.cluster import RequestRejected
from testing.operator.processes import manifest

BATCH = {"batching": {"globalBatchSize": 12}}
LOCAL = {"cpus": 4, "memory": "2Gi"}


def entry(**fields):
    return {"dataset": {"type": "EntryPoint", "entryPoint": {"function": "a:b", **fields}}}


def template(**container):
    return {"workers": {"template": {"spec": {"containers": [{"name": "worker", **container}]}}}}


VALID_AND_INVALID = [
    ({"partitions": 4, **BATCH}, {"partitions": 5, **BATCH}, "spec: .*partitions does not divide"),
    (
        {"workers": {"autoscaling": {"minReplicas": 2, "maxReplicas": 2}}},
        {"workers": {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}},
        "spec.workers.autoscaling: .*minReplicas is greater than maxReplicas",
    ),
    (
        {"workers": {"autoscaling": {"maxReplicas": 2}}},
        {"workers": {"autoscaling": {}}},
        "spec.workers.autoscaling.maxReplicas: Required value",
    ),
    (
        entry(),
        {"dataset": {"type": "Trainer", "entryPoint": {"function": "a:b"}}},
        "spec.dataset: .*type Trainer excludes it",
    ),
    ({"dataset": {"type": "Trainer"}}, {"dataset": {"type": "EntryPoint"}}, "needs entryPoint"),
    ({"dataset": {"type": "Trainer"}}, {"dataset": {}}, "spec.dataset.type: Required value"),
    (
        entry(source={"type": "ConfigMap", "configMap": {"name": "code"}}),
        entry(source={"type": "Image", "configMap": {"name": "code"}}),
        "spec.dataset.entryPoint.source: .*type ConfigMap needs configMap, and other types exclude",
    ),
    (
        entry(source={"type": "Path", "path": "."}),
        entry(source={"type": "Path"}),
        "spec.dataset.entryPoint.source: .*type Path needs path",
    ),
    (entry(function="a.b:c"), entry(function="a.b"), "spec.dataset.entryPoint.function"),
    (
        {"workers": {"accelerator": {"resourceName": "amd.com/gpu"}}},
        {"workers": {"accelerator": {"resourceName": "gpu"}}},
        "spec.workers.accelerator.resourceName",
    ),
    (
        {"workers": {"autoscaling": {"maxReplicas": 2}}},
        {"workers": {"autoscaling": {"maxReplicas": 2}, "replicas": 2}},
        "spec.workers: .*autoscaling sets the number of workers: remove replicas",
    ),
    (
        {"trainers": {"weight": "500m"}},
        {"trainers": {"weight": "2k"}},
        "spec.trainers.weight: .*1000",
    ),
    (
        {"tfDataService": {}, "encryption": "None"},
        {"tfDataService": {}, "encryption": "All"},
        "spec: .*tfDataService has no authentication and cannot be encrypted",
    ),
    (
        {"tfDataService": {}, "encryption": "None"},
        {"tfDataService": {}, "encryption": "None", "networkPolicy": "Open"},
        "spec: .*set networkPolicy: Restricted, or remove tfDataService",
    ),
    (
        {"workers": {"local": LOCAL, "autoscaling": {"minReplicas": 0, "maxReplicas": 2}}},
        {"workers": {"autoscaling": {"minReplicas": 0, "maxReplicas": 2}}},
        "spec.workers: .*minReplicas is 0, but there are no workers beside the trainers: add local",
    ),
    (
        {"workers": {"local": LOCAL}},
        {"workers": {"local": LOCAL, "accelerator": {"resourceName": "nvidia.com/gpu"}}},
        "spec.workers: .*local excludes accelerator",
    ),
    (
        {"workers": {"placement": "NearTrainers"}},
        {"workers": {"placement": "near"}},
        'spec.workers.placement: Unsupported value: "near"',
    ),
    ({"workers": {"replicas": 0}}, {"workers": {"replicas": -1}}, "spec.workers.replicas"),
    (
        {"sidecar": {"buffer": "1Gi"}},
        {"sidecar": {"buffer": "1GB"}},
        "spec.sidecar.buffer",
    ),
    (
        {"sidecar": {"buffer": 1048576}},
        {"sidecar": {"buffer": "512Ki"}},
        "spec.sidecar.buffer: .*1Mi to 1Ti",
    ),
    (
        {"sidecar": {"buffer": "268435456000m"}},
        {"sidecar": {"buffer": "500m"}},
        "spec.sidecar.buffer: .*1Mi to 1Ti",
    ),
    (
        {"sidecar": {"buffer": ".5Gi"}},
        {"sidecar": {"buffer": "1E"}},
        "spec.sidecar.buffer: .*1Mi to 1Ti",
    ),
    (
        {"sidecar": {"buffer": "64Mi", "resources": {"limits": {"memory": 201326592}}}},
        {"sidecar": {"buffer": 67108864, "resources": {"limits": {"memory": "191Mi"}}}},
        "spec.sidecar: .*is too small for the buffer and the process",
    ),
    (
        {"sidecar": {"resources": {"limits": {"cpu": 1}}}},
        {"sidecar": {"resources": {"limits": {"cpu": 1, "memory": "1.5M"}}}},
        "spec.sidecar: .*set it to at least buffer plus 128Mi",
    ),
    ({"seed": 2**63 - 1}, {"seed": 2**63}, "spec.seed"),
    (
        template(resources={"requests": {"cpu": 4, "memory": "1.5Gi"}}),
        template(resources={"requests": {"cpu": "four"}}),
        r"spec.workers.template.spec.containers\[0\].resources.requests",
    ),
    (
        template(env=[{"name": "A"}], workingDir="/work"),
        template(env=["A"]),
        r"spec.workers.template.spec.containers\[0\].env",
    ),
    (
        {"workers": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}}},
        {"workers": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}}},
        r"spec.workers.template.spec.containers\[1\]: Duplicate value",
    ),
]
IMMUTABLE = [
    ("partitions", {"partitions": 4}, {"partitions": 2}),
    ("partitions", {}, {"partitions": 2}),
    ("numSplits", {"numSplits": 4}, {"numSplits": 8}),
    ("seed", {"seed": 1}, {"seed": 2}),
    ("processingMode", {}, {"processingMode": "ParallelEpochs"}),
    ("globalBatchSize", BATCH, {"batching": {"globalBatchSize": 24}}),
    ("globalBatchSize", BATCH, {"batching": {"globalBatchSize": None}}),
    ("globalBatchSize", {}, BATCH),
    ("encryption", {}, {"encryption": "All"}),
    ("encryption", {"encryption": "Control"}, {"encryption": None}),
    ("managedBy", {}, {"managedBy": "distributed-input.dev/canary"}),
]


@pytest.mark.parametrize(("valid", "invalid", "message"), VALID_AND_INVALID)
def test_a_rule_accepts_valid_values_and_names_the_field_of_invalid_ones(
    cluster, valid, invalid, message
):
    cluster.create(manifest("rule", **valid), dryRun="All")
    with pytest.raises(RequestRejected, match=message) as refused:
        cluster.create(manifest("rule", **invalid), dryRun="All")
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("valid", "invalid", "message"),
    [
        ("a" * 52, "a" * 53, "metadata.name is too long: use at most 52 characters"),
        ("a-1", "1-a", "metadata.name is not a valid name: use lower-case letters"),
        ("a", "a.b", "metadata.name is not a valid name: use lower-case letters"),
    ],
)
def test_names_are_short_enough_for_suffixes(cluster, valid, invalid, message):
    cluster.create(manifest(valid), dryRun="All")
    with pytest.raises(RequestRejected, match=message):
        cluster.create(manifest(invalid), dryRun="All")


@pytest.mark.parametrize(("field", "before", "after"), IMMUTABLE)
def test_fields_that_determine_positions_are_immutable(cluster, field, before, after):
    cluster.create(manifest("fixed", **before))
    try:
        cluster.patch("DistributedInput", "fixed", {"spec": {"epochs": 3}})
        with pytest.raises(RequestRejected, match=f"spec.*: .*{field} is immutable"):
            cluster.patch("DistributedInput", "fixed", {"spec": after})
    finally:
        cluster.delete("DistributedInput", "fixed")


def test_the_error_of_an_unknown_field_has_its_name(cluster):
    with pytest.raises(RequestRejected, match=r'unknown field "spec.workers.replica"'):
        cluster.create(
            manifest("typo", workers={"replica": 2}), dryRun="All", fieldValidation="Strict"
        )


def test_with_autoscaling_the_scale_subresource_is_rejected(cluster):
    cluster.create(manifest("owned", workers={"autoscaling": {"maxReplicas": 3}}))
    try:
        scale = {"spec": {"replicas": 2}}
        with pytest.raises(RequestRejected, match="autoscaling sets the number of workers"):
            cluster.patch("DistributedInput", "owned", scale, "scale")
        static = {"spec": {"workers": {"autoscaling": None}}}
        cluster.patch("DistributedInput", "owned", static)
        cluster.patch("DistributedInput", "owned", {"spec": {"replicas": 3}}, "scale")
        scaled = {"spec": {"workers": {"autoscaling": {"maxReplicas": 3}, "replicas": None}}}
        cluster.patch("DistributedInput", "owned", scaled)
    finally:
        cluster.delete("DistributedInput", "owned")


def test_kubectl_explains_and_scales(cluster, control_plane):
    def kubectl(*message: str) -> str:
        command = [str(binary("kubectl")), f"--kubeconfig={control_plane.kubeconfig}"]
        result = subprocess.run(
            [*command, "-n", cluster.namespace, *message],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return result.stdout

    cluster.create(manifest("shown"))
    explained = kubectl("explain", "dinput.spec.workers")
    assert "Number of worker pods. 0 pauses the input, unless `local` is set." in " ".join(
        explained.split()
    )
    kubectl("scale", "dinput/shown", "--replicas=3")
    found = cluster.get("DistributedInput", "shown")
    assert found["spec"]["workers"]["replicas"] == 3
    head = kubectl("get", "ml").splitlines()[0].split()
    assert head == ["NAME", "READY", "WORKERS", "STALL", "ROWS/S", "REASON", "AGE"]
    cluster.delete("DistributedInput", "shown")


def test_a_condition_without_a_reason_and_a_time_of_another_form_are_refused(cluster):
    cluster.create(manifest("status"))
    time = "2026-01-31T12:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "message": ""}
    try:
        for status, message in (
            ({"conditions": [ready]}, "lastTransitionTime: Required value"),
            ({"conditions": [{**ready, "lastTransitionTime": "noon"}]}, "date-time"),
            ({"conditions": [{**ready, "lastTransitionTime": time, "reason": ""}]}, "reason"),
            ({"conditions": 2 * [{**ready, "lastTransitionTime": time}]}, "Duplicate value"),
            ({"trainers": {"observedAt": ""}}, "date-time"),
        ):
            with pytest.raises(RequestRejected, match=message):
                cluster.patch("DistributedInput", "status", {"status": status}, "status")
        valid = {"conditions": [{**ready, "lastTransitionTime": time}]}
        cluster.patch("DistributedInput", "status", {"status": valid}, "status")
    finally:
        cluster.delete("DistributedInput", "status")
