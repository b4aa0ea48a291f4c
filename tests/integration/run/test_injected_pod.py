"""A pod runs as injection patched it: the contract between injection, sidecar and client."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api import files, flags, names
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput
from distributed_input_operator.injection.owners import COMPLETION_INDEX
from distributed_input_operator.injection.pod import inject
from distributed_input_operator.objects.shared import shared_objects
from distributed_input_operator.objects.snapshot import Settings
from testing.integration.cluster import DATASETS, Cluster
from testing.integration.kubelet import IMAGE_USER, PodRunner, reason_not_to_run
from testing.operator.processes import template

pytestmark = pytest.mark.skipif(bool(reason_not_to_run()), reason=reason_not_to_run())

TRAINER = Path(__file__).parents[3] / "testing" / "integration" / "injected_trainer.py"
ROOT, USER = 0, 1000  # users of the trainers; root has no access to others' files
ARBITRARY = 1000730000
"""A user as OpenShift gives one to a namespace. It is in no database, and its group is 0."""
INPUTS = ("train", "eval")
SETTINGS = Settings("worker:1", "sidecar:1")
WITH_LOCAL = {
    "replicas": 0,
    "local": {"cpus": 2, "memory": "2Gi"},
    **template(env=[{"name": "PYTHONPATH", "value": str(DATASETS)}]),
}


def resource(name: str, **spec: Any) -> DistributedInput:
    """Return a resource without encryption: the dispatcher of these tests has none."""
    spec = {"sidecar": {"buffer": "4Mi"}, "partitions": 2, "encryption": "None", **spec}
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
    return DistributedInput.model_validate({**head, "spec": spec})


def inputs_of(local: bool) -> dict[str, DistributedInput]:
    entry = {"function": "rows:numbered", "args": {"rows": 40}}
    dataset = {"type": "EntryPoint", "entryPoint": entry}
    batching = {"globalBatchSize": 8}
    return {
        "train": resource(
            "train", dataset=dataset, batching=batching, workers=WITH_LOCAL if local else {}
        ),
        "eval": resource("eval"),
    }


def objects_of(inputs: dict[str, DistributedInput], cluster: Cluster) -> dict[Any, Any]:
    """Return the ConfigMaps and Secrets that the operator creates."""
    made = {}
    for name, one in inputs.items():
        objects = shared_objects(one, SETTINGS)
        (config,) = [obj for obj in objects if obj["kind"] == "ConfigMap"]
        made["configMap", names.shared(name)] = config["data"]
        made["secret", names.shared(name)] = {files.TOKEN_KEY: cluster.token.read_text()}
    return made


def pods_of(inputs: dict[str, DistributedInput], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return two pods of an Indexed Job after injection."""
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    known = {"apiVersion": "batch/v1", "kind": "Job"}
    job = {**known, "metadata": {"name": "fit"}, "spec": spec}
    owner = {**known, "name": "fit", "uid": "fit", "controller": True}
    made = []
    for index in range(2):
        pod = {
            "metadata": {
                "uid": f"pod-{index}",
                "ownerReferences": [owner],
                "labels": {names.INJECT_LABEL: "true"},
                "annotations": {
                    names.INPUTS_ANNOTATION: ",".join(INPUTS),
                    COMPLETION_INDEX: str(index),
                },
            },
            "spec": {"containers": [{"name": "trainer"}]},
        }
        # Both pods share this machine's ports, and other processes may use the defaults.
        monkeypatch.setattr(names, "METRICS_PORT", 21000 + os.getpid() % 20000 + 2 * index)
        made.append(inject(pod, [job], inputs.__getitem__, SETTINGS))
    return made


@pytest.mark.parametrize(
    ("local", "own_user", "trainers_users", "group"),
    [
        (False, IMAGE_USER, (USER, ROOT), None),
        (True, IMAGE_USER, (USER, ROOT), None),
        (True, ARBITRARY, (ARBITRARY, ARBITRARY), 0),
    ],
    ids=["worker-pods", "local-workers", "arbitrary-user"],
)
def test_trainers_read_through_the_containers_of_their_patch(
    own_cluster, monkeypatch, local, own_user, trainers_users, group
):
    own = own_cluster  # a separate one, because the names of inputs identify jobs
    if not local:
        own.add_workers(2)
    # The cluster's dispatcher represents the Services of both inputs.
    monkeypatch.setattr(names, "DISPATCHER_PORT", int(own.address.rpartition(":")[2]))
    inputs = inputs_of(local)
    pods, objects = pods_of(inputs, monkeypatch), objects_of(inputs, own)
    hosts = [names.dispatcher(name) for name in INPUTS]
    with PodRunner(pods[0], objects, hosts) as first, PodRunner(pods[1], objects, hosts) as second:
        trainers = []
        for node, pod, user in zip((first, second), pods, trainers_users, strict=True):
            *workers, sidecar = pod["spec"]["initContainers"]
            assert len(workers) == local
            for worker in workers:
                # Other tests may leave no CPU idle for minutes.
                args = [one for one in worker["args"] if one != flags.IDLE_CPUS]
                node.start({**worker, "args": args}, own_user, group=group)
            node.probe(node.start(sidecar, own_user, group=group), sidecar)
            (trainer,) = pod["spec"]["containers"]
            command = [sys.executable, str(TRAINER)]
            trainers.append((node, trainer, node.start(trainer, user, command, group=group)))
        answers = []
        for node, trainer, process in trainers:
            text, _ = process.communicate(timeout=120)
            assert process.returncode == 0, node.log(trainer)
            answers.append(json.loads(text))
    for index, answer in enumerate(answers):
        assert answer["consumers"] == {name: [index, 2] for name in INPUTS}
    for name, rows in (("train", 40), ("eval", 24)):
        assert sorted(row for answer in answers for row in answer[name]) == list(range(rows))
