"""Print the pods of one input and of its trainer, as the operator of this code creates them.

`python -m testing.releases.render` reads a request as JSON from stdin; see `pods.create_pods`. It
is a program, because `testing.releases.pods` also runs that of the previous commit.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput
from distributed_input_operator.injection.pod import inject
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.shared import shared_objects
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.worker import worker_objects

NAME = "digits"
IMAGES = ("worker:1", "sidecar:1")
"""The operator's default images of workers, and of sidecars and dispatchers."""


def render(request: dict[str, Any]) -> list[Any]:
    """Return the Deployments of the dispatcher and the workers, the trainer's pod, and the data of
    the sidecars' ConfigMap.
    """
    resource, settings, ports = _resource(request), Settings(*IMAGES), request["ports"]
    # All pods of a test share the ports of this machine.
    own: Any = names
    own.DISPATCHER_PORT = ports.get("dispatcher", names.DISPATCHER_PORT)
    own.WORKER_PORT = ports.get("worker", names.WORKER_PORT)
    default = names.METRICS_PORT
    own.METRICS_PORT = ports.get("dispatcher-metrics", default)
    dispatcher = dispatcher_objects(resource, settings)[0]
    own.METRICS_PORT = ports.get("worker-metrics", default)
    worker = worker_objects(resource, settings, 2, "code")[0]
    own.METRICS_PORT = ports.get("trainer-metrics", default)
    trainer = inject(_trainer(), (), lambda name: resource, settings)
    (config,) = [one for one in shared_objects(resource, settings) if one["kind"] == "ConfigMap"]
    return [dispatcher, worker, trainer, config["data"]]


def _resource(request: dict[str, Any]) -> DistributedInput:
    spec = {
        "dataset": {"entryPoint": request["function"], "args": request["args"]},
        "batching": {"globalBatchSize": 8},
        "partitions": 2,
        "sidecar": {"buffer": "4Mi"},
        "workers": {"terminationGracePeriodSeconds": 5},
        "encryption": "none",  # the pods of a test have no certificates
    }
    meta = {"name": NAME, "namespace": "team", "uid": "u-1", "generation": 3}
    return DistributedInput.model_validate(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}
    )


def _trainer() -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "pod-0",
            "labels": {"distributed-input.dev/inject": "true"},
            "annotations": {
                "distributed-input.dev/inputs": NAME,
                "distributed-input.dev/consumers": "1",
                "distributed-input.dev/consumer-index": "0",
            },
        },
        "spec": {"containers": [{"name": "trainer"}]},
    }


if __name__ == "__main__":
    json.dump(render(json.load(sys.stdin)), sys.stdout)
