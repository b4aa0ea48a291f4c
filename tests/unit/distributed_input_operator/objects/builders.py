"""Builders of the desired objects of an input."""

from __future__ import annotations

import json
from typing import Any

from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.shared import shared_objects
from distributed_input_operator.objects.worker import worker_objects
from tests.unit.distributed_input_operator.snapshots import SETTINGS, resource


def objects(**spec: Any) -> dict[tuple[str, str], Any]:
    """Return all objects of the input "digits" with 2 workers, by kind and name."""
    one = resource(**spec)
    found = [
        *shared_objects(one, SETTINGS),
        *dispatcher_objects(one, SETTINGS),
        *worker_objects(one, SETTINGS, 2, "code"),
    ]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod_spec(component: str, **spec: Any) -> Any:
    """Return the spec of the pods of one component."""
    deployment = objects(**spec)["Deployment", f"digits-{component}"]
    return deployment["spec"]["template"]["spec"]


def containers(component: str, **spec: Any) -> dict[str, Any]:
    """Return the containers of the pods of one component by name."""
    return {one["name"]: one for one in pod_spec(component, **spec)["containers"]}


def from_config_map(name: str) -> dict[str, Any]:
    """Return a dataset whose code is in a ConfigMap."""
    source = {"type": "ConfigMap", "configMap": {"name": name}}
    return {"type": "EntryPoint", "entryPoint": {"function": "a:b", "source": source}}


def flag(args: list[str], name: str) -> str:
    """Return the value of a flag."""
    return args[args.index(name) + 1]


def document(**fields: Any) -> dict[str, str]:
    """Return the variable with the document of a process."""
    return {"name": "DISTRIBUTED_INPUT_CONFIG", "value": json.dumps({"version": 1, **fields})}
