"""Parts that the manifests of child objects share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from distributed_input.api import names
from distributed_input.api.environment import GRPC_CIPHERS_ENV, NO_TLS_1_2
from distributed_input.api.resource.input import ObjectMeta
from distributed_input.api.resource.sections.template import ResourceRequirements
from distributed_input_operator.objects.children import (
    APPLIED_ANNOTATION,
    container_resources,
    cpus,
    default_image_annotation,
    digest,
    image_pull_policy,
    image_pull_secrets,
    manifest,
    pod_template,
)
from distributed_input_operator.objects.snapshot import Settings
from tests.unit.distributed_input.api.resource.json_values import json_objects
from tests.unit.distributed_input_operator.objects.builders import (
    containers,
    document,
    flag,
    pod_spec,
)
from tests.unit.distributed_input_operator.snapshots import resource, template


def config_map(data: dict[str, str]) -> dict[str, Any]:
    return manifest(resource(), "v1", "ConfigMap", "digits-config", {"data": data})


def test_the_input_owns_its_children():
    (owner,) = config_map({})["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("DistributedInput", "digits", "u-1")
    # A deletion in the foreground then waits for the children.
    assert owner["controller"] is owner["blockOwnerDeletion"] is True
    assert config_map({})["metadata"]["labels"][names.INPUT_LABEL] == "digits"


def test_the_hash_changes_with_the_content():
    one, other = config_map({"a": "1"}), config_map({})
    hashes = {each["metadata"]["annotations"][APPLIED_ANNOTATION] for each in (one, other, one)}
    assert len(hashes) == 2


@given(json_objects)
def test_the_digest_does_not_depend_on_the_order_of_keys(value):
    assert digest(dict(reversed(list(value.items())))) == digest(value)


def test_the_operators_pull_policy_applies_only_to_its_default_images():
    settings = Settings("worker:1", "sidecar:1", pull_policy="Always", pull_secrets=("a",))
    assert image_pull_policy(None, settings) == {"imagePullPolicy": "Always"}
    assert image_pull_policy("own:1", settings) == {}
    assert image_pull_secrets(settings) == {"imagePullSecrets": [{"name": "a"}]}


def test_only_a_default_image_is_annotated():
    assert default_image_annotation(None, "w:1") == {names.DEFAULT_IMAGE_ANNOTATION: "w:1"}
    assert default_image_annotation("own:1", "w:1") == {}


@pytest.mark.parametrize("part", ["dispatcher", "worker"])
def test_an_encrypted_process_mounts_its_own_certificate_and_no_token(part: str) -> None:
    pod, process = pod_spec(part, encryption="All"), containers(part, encryption="All")[part]
    assert "--token-file" not in process["args"]
    folder = flag(process["args"], "--tls-dir")
    (mount,) = (one for one in process["volumeMounts"] if folder.startswith(one["mountPath"]))
    (volume,) = (one for one in pod["volumes"] if one["name"] == mount["name"])
    found = {}
    for source in volume["projected"]["sources"]:
        ((kind, content),) = source.items()
        assert content["name"] == "digits-distributed-input-tls"
        for item in content["items"]:
            found[f"{mount['mountPath']}/{item['path']}"] = (kind, item["key"])
    assert found == {
        f"{folder}/ca.crt": ("configMap", "ca.crt"),
        f"{folder}/tls.key": ("secret", f"{part}.key"),
        f"{folder}/tls.crt": ("configMap", f"{part}.crt"),
    }


@pytest.mark.parametrize("part", ["dispatcher", "worker"])
def test_the_kubelet_needs_no_certificate(part: str) -> None:
    encrypted = containers(part, encryption="All")[part]
    page = {"path": "/healthz", "port": 9090}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert encrypted[probe]["httpGet"] == page
        assert "grpc" in containers(part)[part][probe]


def test_an_image_without_certificates_does_not_start() -> None:
    """Release 0.1.0 refuses the flag, and would ignore a field of the document."""
    process = containers("worker", encryption="Control")["worker"]
    assert "--tls-dir" in process["args"]
    assert document(plainTransfer=True) in process["env"]


def test_only_encrypted_processes_switch_off_tls_1_2() -> None:
    env = {"name": GRPC_CIPHERS_ENV, "value": NO_TLS_1_2}
    for part in ("dispatcher", "worker"):
        assert env in containers(part, encryption="All")[part]["env"]
        names_of = [one["name"] for one in containers(part)[part].get("env", ())]
        assert GRPC_CIPHERS_ENV not in names_of


@pytest.mark.parametrize("encryption", ["None", "All"])
def test_a_user_cannot_switch_tls_1_2_on(encryption: str) -> None:
    users = [{"name": name, "value": "the user's"} for name in (GRPC_CIPHERS_ENV, "HOME", "OTHER")]
    workers = template(env=users)
    env = containers("worker", encryption=encryption, workers=workers)["worker"]["env"]
    values = {one["name"]: one["value"] for one in env}
    assert len(values) == len(env), "each name once"
    expected = NO_TLS_1_2 if encryption == "All" else "the user's"
    assert (values[GRPC_CIPHERS_ENV], values["HOME"]) == (expected, "the user's")
    assert values["OTHER"] == "the user's"


def test_the_default_is_the_template_of_release_0_1_0() -> None:
    for part in ("dispatcher", "worker"):
        process = containers(part)[part]
        assert "--tls-dir" not in process["args"]
        assert flag(process["args"], "--token-file") == "/etc/distributed-input/tokens/digits"


DEFAULTS = {"cpu": "250m", "memory": "512Mi"}


def test_defaults_apply_to_resources_without_request_and_limit():
    given = ResourceRequirements(requests={"cpu": "2"}, limits={"memory": "1Gi"})
    assert container_resources(given, DEFAULTS) == {
        "requests": {"cpu": "2"},
        "limits": {"memory": "1Gi"},
    }
    assert container_resources(ResourceRequirements(), DEFAULTS) == {"requests": DEFAULTS}


def test_devices_have_equal_requests_and_limits():
    found = container_resources(ResourceRequirements(), {}, {"nvidia.com/gpu": "2"})
    assert found["requests"] == found["limits"] == {"nvidia.com/gpu": "2"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, 1),
        ({"requests": {"cpu": "100m"}}, 1),
        ({"requests": {"cpu": "2500m"}, "limits": {"cpu": "8"}}, 3),
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": "8"}}, 8),
    ],
)
def test_cpus_are_the_request_or_else_the_limit_rounded_up(resources, expected):
    assert cpus(resources) == expected


QUEUE = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "low"}
GROUP = {"kueue.x-k8s.io/pod-group-name": "run-1"}
COUNT = {"kueue.x-k8s.io/pod-group-total-count": "5", "kueue.x-k8s.io/retriable-in-group": "false"}


def of_queue(component: str, labels: dict[str, str]) -> list[dict[str, str]]:
    """Return what a part's pods have of Kueue or of the user, if the input has other keys too."""
    meta = ObjectMeta(name="digits", labels={**labels, "x": "y"}, annotations={**COUNT, "x": "y"})
    metadata = pod_template(meta, component, {}, {})["metadata"]
    return [
        {key: one for key, one in metadata[kind].items() if "kueue" in key or key == "x"}
        for kind in ("labels", "annotations")
    ]


@pytest.mark.parametrize("component", [names.DISPATCHER, names.WORKER])
def test_all_pods_of_an_input_in_a_group_get_its_labels_and_annotations(component: str):
    assert of_queue(component, {**QUEUE, **GROUP}) == [{**QUEUE, **GROUP}, COUNT]


def test_only_workers_wait_in_a_queue_without_a_group():
    assert [of_queue(one, QUEUE) for one in (names.WORKER, names.DISPATCHER)] == [
        [QUEUE, {}],
        [{}, {}],
    ]
