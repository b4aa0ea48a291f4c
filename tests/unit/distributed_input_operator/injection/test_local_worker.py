"""The worker container in a trainer's pod."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from distributed_input.api import names
from distributed_input.api.environment import GRPC_CIPHERS_ENV, NO_TLS_1_2
from distributed_input_operator.injection import pod as injection
from distributed_input_operator.injection.pod import json_patch
from distributed_input_operator.injection.trainer_pod import RefusedError
from distributed_input_operator.objects.snapshot import Settings
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    SETTINGS,
    finder,
    pod,
    resource,
)
from tests.unit.distributed_input_operator.objects.builders import document
from tests.unit.distributed_input_operator.snapshots import template

_SOURCE = "source: {type: ConfigMap, configMap: {name: code}}"
DATASET = f"dataset: {{type: EntryPoint, entryPoint: {{function: 'rows:numbered', {_SOURCE}}}}}"

LOCAL = f"{DATASET}\nworkers: {{local: {{cpus: 4, memory: 2Gi}}}}"


def local(name: str = "train", **workers: Any) -> Any:
    """Return an input with a worker in the trainer's pod."""
    section = {"local": {"cpus": 4, "memory": "2Gi"}, **workers}
    return resource(name, f"{DATASET}\nworkers: {json.dumps(section)}")


def inject(of: Any, *inputs: Any, settings: Settings = SETTINGS) -> dict[str, Any]:
    return injection.inject(of, [], finder(*inputs), settings)


def container(of: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in of["spec"]["initContainers"] if one["name"] == name]
    return dict(found)


def worker_in(of: dict[str, Any], name: str = "train") -> dict[str, Any]:
    return container(of, names.local_worker(name))


def flag(args: list[str], name: str) -> str:
    return args[args.index(name) + 1]


def variables(of: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in of["env"]}


def test_without_local_resources_there_is_no_worker_and_no_pod_id():
    made = inject(pod(), resource("train"))
    (sidecar,) = made["spec"]["initContainers"]
    assert not {"DISTRIBUTED_INPUT_POD_UID", "DISTRIBUTED_INPUT_CONFIG"} & set(variables(sidecar))


def test_worker_and_sidecar_have_the_same_pod_id():
    made = inject(pod(), local(stateDirectory="/states"))
    worker, sidecar = worker_in(made), container(made, names.SIDECAR_CONTAINER)
    # A worker must not ignore its pod. A sidecar may: then it does not see this worker.
    assert flag(worker["args"], "--pod") == "$(DISTRIBUTED_INPUT_POD_UID)"
    assert worker["env"][-1] == document(stateDir="/states")
    assert flag(sidecar["args"], "--pod") == "$(DISTRIBUTED_INPUT_POD_UID)"
    for one in (worker, sidecar):
        (uid,) = [v for v in one["env"] if v["name"] == "DISTRIBUTED_INPUT_POD_UID"]
        assert uid["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


def test_the_worker_uses_idle_cpus_and_only_its_pod_reaches_it():
    worker = worker_in(inject(pod(), local()))
    assert worker["restartPolicy"] == "Always"
    assert worker["image"] == SETTINGS.worker_image
    assert flag(worker["args"], "--listen") == "127.0.0.1:0"
    assert flag(worker["args"], "--dispatcher") == names.address("train")
    assert flag(worker["args"], "--parallelism") == "4"
    assert flag(worker["args"], "--share-bytes") == str((2 << 30) // 8)
    assert "--idle-cpus" in worker["args"]
    assert worker["resources"] == {
        "requests": {"cpu": "10m", "memory": "2Gi"},
        "limits": {"cpu": "4", "memory": "2Gi"},
    }


def test_the_trainer_does_not_wait_for_its_worker():
    worker = worker_in(inject(pod(), local()))
    assert "startupProbe" not in worker
    assert "readinessProbe" not in worker
    port = worker["livenessProbe"]["httpGet"]["port"]
    assert flag(worker["args"], "--metrics-listen") == f":{port}"


def test_the_worker_has_what_worker_pods_have():
    workers: dict[str, Any] = template(
        {
            "securityContext": {"runAsUser": 1234, "fsGroup": 5},
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": "photos"}},
                {"name": "unused", "emptyDir": {}},
            ],
        },
        image="own:1",
        env=[{"name": "KEY", "value": "v"}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        workingDir="/work",
    )
    made = inject(pod(), local(**workers))
    worker = worker_in(made)
    assert (worker["image"], worker["workingDir"]) == ("own:1", "/work")
    assert variables(worker)["KEY"] == "v"
    assert worker["securityContext"]["runAsUser"] == 1234
    assert worker["securityContext"]["runAsNonRoot"]
    assert worker["securityContext"]["readOnlyRootFilesystem"]
    assert "fsGroup" not in worker["securityContext"]  # only a pod has it
    mounts = {one["mountPath"]: one["name"] for one in worker["volumeMounts"]}
    volumes = {one["name"]: one for one in made["spec"]["volumes"]}
    assert volumes[mounts["/data"]]["persistentVolumeClaim"] == {"claimName": "photos"}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {}
    assert set(mounts.values()) <= set(volumes)
    assert not any(name.startswith("unused") for name in volumes)


def test_volumes_of_the_trainer_keep_their_content():
    own = {"name": "data", "emptyDir": {}}
    workers: dict[str, Any] = template(
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "photos"}}]},
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    made = inject(pod("train,eval", volumes=[own]), local(**workers), local("eval"))
    assert made["spec"]["volumes"][0] == own
    found = [one["name"] for one in made["spec"]["volumes"]]
    assert len(found) == len(set(found))
    assert all(len(name) <= 63 for name in found)


def test_the_worker_sees_no_accelerator_and_no_api_token():
    worker = worker_in(inject(pod(), local()))
    assert variables(worker)["CUDA_VISIBLE_DEVICES"] == "-1"
    assert variables(worker)["NVIDIA_VISIBLE_DEVICES"] == "void"
    tokens = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert tokens in [one["mountPath"] for one in worker["volumeMounts"]]


def test_a_trainer_that_runs_as_root_gets_a_worker_that_does_not():
    worker = worker_in(inject(pod(securityContext={"runAsUser": 0}), local()))
    assert worker["securityContext"]["runAsUser"] == names.USER_ID
    assert "runAsUser" not in worker_in(inject(pod(), local()))["securityContext"]


def test_each_input_has_its_own_worker_and_port():
    trainer = [{"name": "t", "image": "i", "ports": [{"containerPort": 9091}]}]
    made = inject(pod("train,eval", containers=trainer), local(), local("eval"))
    found = [one["name"] for one in made["spec"]["initContainers"]]
    assert found == ["di-worker-train", "di-worker-eval", names.SIDECAR_CONTAINER]
    ports = [one["ports"][0]["containerPort"] for one in made["spec"]["initContainers"]]
    assert ports == [9092, 9093, 9090]


def test_a_second_injection_changes_nothing():
    once = inject(pod("train,eval"), local(), local("eval"))
    assert json_patch(once, inject(once, local(), local("eval"))) == []


def test_an_injected_pod_is_plain_yaml():
    made = inject(pod(), local())
    assert yaml.safe_load(yaml.safe_dump(made)) == made


def test_another_service_account_is_refused_with_the_remedy():
    one = local(**template({"serviceAccountName": "reader"}))
    for trainer in (pod(), pod(serviceAccountName="other")):
        with pytest.raises(RefusedError) as caught:
            inject(trainer, one)
        assert "spec.serviceAccountName to reader" in str(caught.value)
        assert "remove spec.workers.local" in str(caught.value)
    inject(pod(serviceAccountName="reader"), one)


def test_the_worker_of_an_encrypted_input_has_the_certificate_of_a_worker():
    made = inject(pod(), resource("train", f"{LOCAL}\nencryption: All"))
    worker, sidecar = worker_in(made), container(made, names.SIDECAR_CONTAINER)
    folder = "/etc/distributed-input/tls"
    assert flag(worker["args"], "--tls-dir") == f"{folder}/train"
    assert flag(sidecar["args"], "--tls-dir") == folder
    ciphers = [one for one in worker["env"] if one["name"] == GRPC_CIPHERS_ENV]
    assert ciphers == [{"name": GRPC_CIPHERS_ENV, "value": NO_TLS_1_2}]
    (mount,) = [one for one in worker["volumeMounts"] if one["mountPath"] == folder]
    (volume,) = [one for one in made["spec"]["volumes"] if one["name"] == mount["name"]]
    keys = [
        item["key"]
        for source in volume["projected"]["sources"]
        for content in source.values()
        for item in content["items"]
    ]
    assert keys == ["worker.key", "ca.crt", "worker.crt"]
