"""The container of the sidecar, and its volumes."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.environment import GRPC_CIPHERS_ENV, NO_TLS_1_2
from distributed_input_operator.injection.sidecar import (
    sidecar_container,
    sidecar_volumes,
)
from distributed_input_operator.injection.trainer_pod import RefusedError, TrainerRank
from tests.unit.distributed_input_operator.injection.trainer_pods import IMAGE, resource

TRAIN = resource(
    "train",
    "sidecar: {buffer: 64Mi}\ndataset: {type: EntryPoint, entryPoint: {function: 'rows:numbered'}}",
)
EVAL = resource("eval", "sidecar: {buffer: 16Mi}")


def container(
    *inputs: Any, user: int | None = None, trainers: int = 1, ranks: int = 1
) -> dict[str, Any]:
    rank = TrainerRank({"value": "0"}, trainers, "the test", ranks)
    return sidecar_container(inputs, IMAGE, user, 9090, rank)


def shared_memory(*inputs: Any, ranks: int = 1) -> dict[str, Any]:
    return next(dict(v["emptyDir"]) for v in sidecar_volumes(inputs, ranks) if "emptyDir" in v)


def test_the_shared_memory_has_room_for_two_buffers_per_input():
    assert shared_memory(TRAIN) == {"medium": "Memory", "sizeLimit": "128Mi"}


def test_the_sidecar_has_memory_for_the_buffers_and_streams_of_all_ranks():
    # All ranks may send their dataset at the same time.
    assert shared_memory(TRAIN, EVAL, ranks=4)["sizeLimit"] == f"{4 * 2 * (64 + 16) + 4 * 256}Mi"
    made = container(TRAIN, trainers=2, ranks=4)
    assert made["resources"] == {
        "requests": {"cpu": "1", "memory": f"{4 * 64 + 128}Mi"},
        "limits": {"memory": f"{4 * (64 + 512)}Mi"},
    }
    # Eight consumers read 16 of the 128 partitions each.
    many = container(resource("train", "partitions: 128"), trainers=2, ranks=4)
    assert many["resources"]["limits"] == {"memory": "3Gi"}  # 4 * (256 + 512) MiB
    assert made["args"][made["args"].index("--ranks-per-trainer") + 1] == "4"
    assert "--ranks-per-trainer" not in container(TRAIN)["args"]


def test_a_memory_limit_without_room_for_the_buffers_of_all_ranks_is_refused():
    limited = resource("train", "sidecar: {buffer: 64Mi, resources: {limits: {memory: 300Mi}}}")
    assert container(limited, ranks=2)["resources"]["limits"] == {"memory": "300Mi"}
    with pytest.raises(RefusedError, match=r"input train: .*memory is 300Mi, .* 4 ranks.* 384Mi"):
        container(limited, ranks=4)


def test_the_shared_memory_has_room_for_a_dataset_that_the_trainer_sends():
    assert shared_memory(EVAL)["sizeLimit"] == "288Mi"
    assert shared_memory(TRAIN, EVAL)["sizeLimit"] == "416Mi"


def test_the_memory_of_the_sidecar_includes_its_buffers():
    assert container(TRAIN, EVAL)["resources"] == {
        "requests": {"cpu": "500m", "memory": "336Mi"},
        "limits": {"memory": "1104Mi"},
    }


@pytest.mark.parametrize(
    ("spec", "trainers", "limit"),
    [
        ("", 1, 256 + 512),
        ("partitions: 32", 1, 256 + 512),
        ("partitions: 128", 1, 256 + 128 + 5 * 256),
        ("partitions: 128", 4, 256 + 512),
        ("partitions: 128\nprocessingMode: ParallelEpochs", 4, 256 + 128 + 5 * 256),
        ("partitions: 128\nsidecar: {readAhead: 3}", 1, 256 + 128 + 5 * 512),
        ("sidecar: {readAhead: 8, buffer: 1Gi}", 1, 1024 + 512),
        ("workers: {replicas: 64, parallelism: 2}", 1, 256 + 128 + 5 * 256),
        ("workers: {replicas: 64, parallelism: 2}", 8, 256 + 512),
        ("workers: {autoscaling: {maxReplicas: 1000}, parallelism: 2}", 1, 256 + 128 + 5 * 512),
        ("workers: {replicas: 64, parallelism: 2}\nsidecar: {readAhead: 1}", 1, 256 + 512),
    ],
)
def test_the_memory_limit_includes_the_open_streams(spec: str, trainers: int, limit: int):
    found = container(resource("train", spec), trainers=trainers)["resources"]
    assert found["limits"] == {"memory": f"{limit}Mi"}
    assert found["requests"]["memory"] in ("384Mi", "1152Mi"), "most streams use less"


def test_the_resources_of_several_inputs_add_up():
    first = resource("train", "sidecar: {resources: {limits: {cpu: 1500m, memory: 1G}}}")
    second = resource("eval", "sidecar: {resources: {requests: {cpu: 1, memory: 2Gi}}}")
    assert container(first, second)["resources"] == {
        "requests": {"cpu": "2500m", "memory": str(10**9 + 2 * 2**30)},
        "limits": {"memory": str(10**9 + 2 * 2**30)},
    }
    assert container(first)["resources"]["limits"]["cpu"] == "1500m"


def test_inputs_with_different_images_are_refused():
    first = resource("train", "sidecar: {image: 'a:1'}")
    second = resource("eval", "sidecar: {image: 'b:1'}")
    with pytest.raises(RefusedError, match=r"a:1 \(train\) and b:1 \(eval\)"):
        container(first, second)
    assert container(first, EVAL)["image"] == "a:1"
    assert container(TRAIN)["image"] == IMAGE


def test_the_sidecar_has_minimal_permissions():
    security = container(TRAIN)["securityContext"]
    assert security["runAsNonRoot"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not security["allowPrivilegeEscalation"]
    assert "runAsUser" not in security  # the user of the image or the pod
    assert container(TRAIN, user=7)["securityContext"]["runAsUser"] == 7


def test_the_sidecar_of_an_encrypted_input_mounts_its_own_certificate() -> None:
    secret = resource("secret", "encryption: All")
    args = container(TRAIN, secret)["args"]
    assert args[args.index("--tls-dir") + 1] == "/etc/distributed-input/tls"
    (volume,) = (one for one in sidecar_volumes([TRAIN, secret]) if "projected" in one)
    paths = {
        item["path"]: (content["name"], item["key"])
        for source in volume["projected"]["sources"]
        for content in source.values()
        for item in content["items"]
    }
    name = "secret-distributed-input-tls"
    assert paths == {
        "config/train.json": ("train-distributed-input", "inputs.json"),
        "tokens/train": ("train-distributed-input", "token"),
        "config/secret.json": ("secret-distributed-input", "inputs.json"),
        "tls/secret/ca.crt": (name, "ca.crt"),
        "tls/secret/tls.key": (name, "sidecar.key"),
        "tls/secret/tls.crt": (name, "sidecar.crt"),
    }

    env = {one["name"]: one.get("value") for one in container(TRAIN, secret)["env"]}
    assert env[GRPC_CIPHERS_ENV] == NO_TLS_1_2


def test_other_sidecars_have_no_flag_that_release_0_1_0_lacks() -> None:
    assert "--tls-dir" not in container(TRAIN)["args"]
    assert GRPC_CIPHERS_ENV not in [one["name"] for one in container(TRAIN)["env"]]
