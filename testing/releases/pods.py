"""The pods of one input and of its trainer, as the operators of releases create them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input.api.resource.lifetime.encryption import EARLIER_DEFAULT

NAME = "digits"
IMAGES = ("worker:1", "sidecar:1")
"""The operator's default images of workers, and of sidecars and dispatchers."""

_CURRENT = """
from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.injection.pod import inject
from distributed_input.api.resource.status import Status
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.running_defaults import with_running_defaults
from distributed_input_operator.objects.shared import shared_objects
from distributed_input_operator.objects.snapshot import Settings, Snapshot
from distributed_input_operator.objects.worker import worker_objects

def continued(resource, settings, running):
    objects = {("Deployment", one["metadata"]["name"]): one for one in running}
    return with_running_defaults(Snapshot(resource, Status(), settings, objects, code="code"))
"""
_IMPORTS = {
    "": _CURRENT,
    "0.1.0": """
from distributed_input_operator.core import names
from distributed_input_operator.core.dispatcher import dispatcher_objects
from distributed_input_operator.core.injection import injected
from distributed_input_operator.core.shared import shared_objects
from distributed_input_operator.core.snapshot import Settings
from distributed_input_operator.core.types import DistributedInput
from distributed_input_operator.core.worker import worker_objects

def inject(pod, owners, find, settings):
    return injected(pod, owners, find, settings.sidecar_image)

def continued(resource, settings, running):
    return settings
""",
}
"""Imports by release. "": this checkout."""
_PROGRAM = """
import json, sys
request = json.load(sys.stdin)
resource = DistributedInput.model_validate(request["resource"])
settings = continued(resource, Settings(*request["images"]), request["running"])
ports = request["ports"]
# All pods of a test share the ports of this machine.
names.DISPATCHER_PORT = ports.get("dispatcher", names.DISPATCHER_PORT)
names.WORKER_PORT = ports.get("worker", names.WORKER_PORT)
default = names.METRICS_PORT
def use_metrics_port(part):
    names.METRICS_PORT = ports.get(part + "-metrics", default)
use_metrics_port("dispatcher")
dispatcher = dispatcher_objects(resource, settings)[0]
use_metrics_port("worker")
worker = worker_objects(resource, settings, 2, "code")[0]
use_metrics_port("trainer")
trainer = inject(request["trainer"], {}, lambda name: resource, settings)
(config,) = [one for one in shared_objects(resource, settings) if one["kind"] == "ConfigMap"]
json.dump([dispatcher, worker, trainer, config["data"]], sys.stdout)
"""


@dataclass(frozen=True)
class InputPods:
    """What an operator creates for one input and for a trainer's pod. All values are JSON."""

    dispatcher: Any
    """The dispatcher's Deployment."""
    worker: Any
    """The workers' Deployment."""
    trainer: Any
    """The trainer's pod after injection."""
    config: Any
    """The data of the sidecars' ConfigMap."""


def create_pods(
    spec: Mapping[str, Any],
    release: str = "",
    code: Path | None = None,
    ports: Mapping[str, int] | None = None,
    running: InputPods | None = None,
) -> InputPods:
    """Run the operator's pure functions in a process of a release.

    Args:
        spec: of the input, which is named NAME. An earlier release has created it, so this checkout
            continues it without encryption.
        release: a key of `sources.COMMITS`. "": this checkout.
        code: folder with the code of the release. None: this checkout.
        ports: ports of "dispatcher" and "worker", and "<part>-metrics", also of "trainer". The
            defaults are those of the release.
        running: what exists of the input, which this checkout continues.
    """
    if not release:
        spec = {"encryption": EARLIER_DEFAULT, **spec}
    meta = {"name": NAME, "namespace": "team", "uid": "u-1", "generation": 3}
    annotations = {
        "distributed-input.dev/inputs": NAME,
        "distributed-input.dev/consumers": "1",
        "distributed-input.dev/consumer-index": "0",
    }
    request = {
        "resource": {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec},
        "images": IMAGES,
        "ports": dict(ports or {}),
        "running": [running.dispatcher, running.worker] if running else [],
        "trainer": {
            "metadata": {
                "uid": "pod-0",
                "labels": {"distributed-input.dev/inject": "true"},
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": "trainer"}]},
        },
    }
    done = subprocess.run(
        (sys.executable, "-c", _IMPORTS[release] + _PROGRAM),
        env={**os.environ, **image_env(code)},
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return InputPods(*json.loads(done.stdout))


def image_env(code: Path | None, *more: Path) -> dict[str, str]:
    """Return the environment of a process or an image.

    Args:
        code: folder with the code of a release. None: this checkout.
        more: further folders of Python modules.
    """
    own = [code / "sidecar" / "src", code / "operator" / "src"] if code else []
    return {"PYTHONPATH": ":".join(map(str, (*own, *more)))}
