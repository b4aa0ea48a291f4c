"""TensorFlow's own tf.data service in the pods of an input, with all sharding policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distributed_input.api.names import (
    COMPONENT_LABEL,
    INPUT_LABEL,
    TF_DATA_WORKER_CONTAINER,
    WORKER,
)
from testing.e2e.training import trainers
from testing.operator.processes import eventually

pytestmark = pytest.mark.timeout(900)  # the pods import TensorFlow, possibly on a slow machine

_NAME = "tf-data"
_PROGRAM = Path(__file__).parents[2] / "testing" / "e2e" / "tf_data_service.py"


def test_an_unmodified_program_reads_under_every_policy(kubectl, node_cluster):
    requests = {"cpu": "50m", "memory": "256Mi"}
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _NAME},
            "data": {_PROGRAM.name: _PROGRAM.read_text()},
        },
        {
            "apiVersion": "distributed-input.dev/v1beta1",
            "kind": "DistributedInput",
            "metadata": {"name": _NAME},
            "spec": {
                "dataset": {"type": "Trainer"},
                "workers": {
                    "replicas": 2,
                    "template": {
                        "spec": {
                            "containers": [{"name": "worker", "resources": {"requests": requests}}]
                        }
                    },
                },
                "sidecar": {"buffer": "1Mi"},
                "tfDataService": {"staticSharding": True},
                "encryption": "None",
            },
        },
    )
    kubectl.wait(f"dinput/{_NAME}", "Ready", 170)
    address = kubectl.get("dinput", _NAME)["status"]["tfDataService"]["address"]
    assert address == f"grpc://{_NAME}-dispatcher:7080"
    eventually(lambda: _registered_workers(kubectl) == 2, 170)
    kubectl.apply(trainers(_NAME, node_cluster.images["worker"], [_PROGRAM.name], 1))
    kubectl.wait(f"job/{_NAME}", "Complete", 170)
    logs = kubectl("logs", f"job/{_NAME}", "-c", "trainer").splitlines()
    rows = json.loads(logs[-1])  # after TensorFlow's log lines
    each_row_once, each_row_twice = list(range(100)), sorted([*range(100), *range(100)])
    assert rows == {
        "OFF": each_row_twice,
        **dict.fromkeys(("DYNAMIC", "DATA", "HINT", "FILE_OR_DATA"), each_row_once),
    }


def _registered_workers(kubectl) -> int:
    """Return the number of registered workers. An epoch uses only those registered at its start."""
    pods = kubectl.list("pod", f"{INPUT_LABEL}={_NAME},{COMPONENT_LABEL}={WORKER}")
    logs = [
        kubectl("logs", pod["metadata"]["name"], "-c", TF_DATA_WORKER_CONTAINER) for pod in pods
    ]
    return sum('"serving"' in one for one in logs)
