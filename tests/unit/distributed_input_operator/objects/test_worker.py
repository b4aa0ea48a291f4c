"""The objects of the workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api import files, names
from distributed_input_operator.objects.worker import worker_objects
from tests.unit.distributed_input_operator.objects.builders import (
    containers,
    document,
    flag,
    from_config_map,
    objects,
    pod_spec,
)
from tests.unit.distributed_input_operator.snapshots import SETTINGS, resource, template


def test_volumes_service_account_priority_and_environment_come_from_the_spec():
    spec = pod_spec(
        "worker",
        workers=template(
            {
                "serviceAccountName": "reader",
                "priorityClassName": "low",
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "photos"}}],
            },
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
            env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        ),
    )
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("reader", "low")
    assert spec["volumes"][-1]["name"] == "data"
    (container,) = spec["containers"]
    assert container["volumeMounts"][-1]["mountPath"] == "/data"
    assert container["env"][-1]["name"] == "KEY"


@pytest.mark.parametrize(
    ("resources", "parallelism"),
    [
        ({}, "1"),
        ({"requests": {"cpu": "3500m"}}, "4"),
        ({"limits": {"cpu": 2}}, "2"),
    ],
)
def test_a_worker_computes_one_row_per_cpu_in_parallel(resources, parallelism):
    args = containers("worker", workers=template(resources=resources))["worker"]["args"]
    assert flag(args, "--parallelism") == parallelism


def test_a_worker_saves_states_in_the_folder_of_the_resource():
    own = {"name": "FOLDER", "value": "/states"}
    spec = {"stateDirectory": "/states", **template(env=[own])}
    container = containers("worker", workers=spec)["worker"]
    # Kubernetes expands references only to variables that come before.
    assert container["env"][-2:] == [own, document(stateDir="/states")]


@pytest.mark.parametrize(
    ("spec", "source", "size"),
    [
        ({}, {"emptyDir": {"sizeLimit": str(10 * 5 * (1 << 30) // 4)}}, 10 << 30),
        ({"size": "4Mi"}, {"emptyDir": {"sizeLimit": str(5 << 20)}}, 4 << 20),
        (
            {"size": "1Gi", "claimName": "splits"},
            {"persistentVolumeClaim": {"claimName": "splits"}},
            1 << 30,
        ),
    ],
)
def test_a_worker_stores_splits_on_the_volume_of_the_resource(spec, source, size):
    folder = "/var/lib/distributed-input/store"
    made = {one["kind"]: one for one in worker_objects(resource(store=spec), SETTINGS, 1, "")}
    pod = made["Deployment"]["spec"]["template"]["spec"]
    assert {"name": "store", **source} in pod["volumes"]
    (container,) = pod["containers"]
    assert {"name": "store", "mountPath": folder} in container["volumeMounts"]
    assert container["env"][-1] == document(storeDir=folder, storeBytes=str(size))


def test_a_document_exists_only_if_the_spec_needs_it():
    tf_data = {"workers": {"stateDirectory": "/states"}, "tfDataService": {}}
    without = (
        containers("worker")["worker"],
        containers("dispatcher")["dispatcher"],
        containers("worker", **tf_data)["tf-data-worker"],
    )
    for container in without:
        assert "DISTRIBUTED_INPUT_CONFIG" not in [one["name"] for one in container.get("env", ())]


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        ({}, 64 << 20),
        ({"requests": {"memory": "4Gi"}}, 512 << 20),
        ({"limits": {"memory": "2Gi"}}, 256 << 20),
        ({"requests": {"memory": "1E"}}, 10**18 // 8),
        ({"requests": {"memory": "500m"}}, 0),
    ],
)
def test_a_worker_shares_rows_in_an_eighth_of_its_memory(resources, size):
    args = containers("worker", workers=template(resources=resources))["worker"]["args"]
    assert flag(args, "--share-bytes") == str(size)


def test_the_process_ends_its_streams_before_the_grace_period_of_its_pod():
    spec = pod_spec("worker", workers=template({"terminationGracePeriodSeconds": 30}))
    assert spec["terminationGracePeriodSeconds"] == 30
    assert int(flag(spec["containers"][0]["args"], "--grace-seconds")) < 30


def test_the_code_of_a_config_map_is_mounted_and_imported():
    dataset = from_config_map("code")
    spec = pod_spec("worker", dataset=dataset)
    assert {"name": "code", "configMap": {"name": "code"}} in spec["volumes"]
    assert flag(spec["containers"][0]["args"], "--path") == files.CODE_DIR
    assert "--path" not in pod_spec("worker")["containers"][0]["args"]


def test_other_code_replaces_the_pods():
    templates = [
        worker_objects(resource(), SETTINGS, 2, code)[0]["spec"]["template"] for code in "ab"
    ]
    assert templates[0] != templates[1]


@pytest.mark.parametrize(
    ("workers", "update"),
    [
        ({}, {"maxUnavailable": 0, "maxSurge": "25%"}),
        ({"accelerator": {"resourceName": "nvidia.com/gpu"}}, {"maxUnavailable": 1, "maxSurge": 0}),
    ],
)
def test_an_update_needs_no_further_accelerators(workers: dict[str, Any], update: dict[str, Any]):
    deployment = objects(workers=workers)["Deployment", "digits-worker"]
    assert deployment["spec"]["strategy"]["rollingUpdate"] == update


def test_an_update_of_a_group_needs_no_further_pods():
    one = resource()
    meta = one.metadata.model_copy(update={"labels": {names.POD_GROUP_LABEL: "run-1"}})
    deployment = worker_objects(one.model_copy(update={"metadata": meta}), SETTINGS, 2, "")[0]
    update = deployment["spec"]["strategy"]["rollingUpdate"]
    assert update == {"maxUnavailable": 1, "maxSurge": 0}


def test_the_pod_template_of_the_spec_is_merged_over_the_generated_one():
    spec = pod_spec("worker", workers=template({"hostname": "x"}, tty=True))
    assert spec["hostname"] == "x"
    assert spec["containers"][0]["tty"]
    assert spec["containers"][0]["image"] == "worker:1"


def test_a_worker_imports_only_the_modules_of_the_policy():
    settings = replace(SETTINGS, modules=("digits", "team.data"))
    deployment = worker_objects(resource(), settings, 1, "")[0]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    # A flag: an image of an earlier release, which has no list, does not start.
    at = container["args"].index("--modules")
    assert container["args"][at + 1] == "digits,team.data"


LOST_NODE = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def worker_pod(**workers: Any) -> Any:
    return pod_spec("worker", workers=workers)


@pytest.mark.parametrize(
    ("accelerator", "selector", "resource"),
    [
        (
            {
                "resourceName": "nvidia.com/gpu",
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
            },
            {"nvidia.com/gpu.product": "NVIDIA-L4"},
            {"nvidia.com/gpu": "1"},
        ),
        ({"resourceName": "amd.com/gpu", "count": 2}, {}, {"amd.com/gpu": "2"}),
    ],
)
def test_accelerators_set_node_selector_resources_and_toleration(accelerator, selector, resource):
    spec = worker_pod(accelerator=accelerator)
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", **selector}
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == resource
    assert container["resources"]["requests"].items() >= resource.items()
    taint = {"key": next(iter(resource)), "operator": "Exists", "effect": "NoSchedule"}
    assert spec["tolerations"] == [taint, *LOST_NODE]


def test_near_trainers_prefers_the_trainers_nodes_and_tolerates_their_taints():
    spec = worker_pod(placement="NearTrainers")
    (term,) = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels == {"distributed-input.dev/reads-digits": "true"}
    others = [one for one in spec["tolerations"] if one not in LOST_NODE]
    assert {one["key"] for one in others} == {"nvidia.com/gpu", "google.com/tpu"}


def test_dedicated_avoids_nodes_with_trainers():
    affinity = worker_pod(placement="Dedicated")["affinity"]["podAntiAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"distributed-input.dev/inject": "true"}


def test_spot_nodes_are_tolerated_and_preferred():
    spec = worker_pod(spot=True)
    taints = {(one["key"], one.get("value")) for one in spec["tolerations"]}
    assert ("cloud.google.com/gke-spot", "true") in taints
    assert "nodeAffinity" in spec["affinity"]


def test_pods_leave_a_lost_node_early_unless_the_spec_tolerates_its_taints():
    assert pod_spec("dispatcher")["tolerations"] == LOST_NODE
    assert worker_pod()["tolerations"] == LOST_NODE
    longer = {**LOST_NODE[1], "tolerationSeconds": 600}
    assert worker_pod(**template({"tolerations": [longer]}))["tolerations"] == [
        longer,
        LOST_NODE[0],
    ]
    all_taints = {"operator": "Exists"}
    assert worker_pod(**template({"tolerations": [all_taints]}))["tolerations"] == [all_taints]
