"""Injection of the sidecar: a pod in, the pod with its sidecar out. Pure.

Idempotent: what is there already stays, so that the API server may ask again after others have
changed the pod, and a pod that was injected offline passes through.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.injection.consumers import consumer
from distributed_input_operator.injection.sidecar import (
    RUN_MOUNT,
    consumer_env,
    free_port,
    sidecar_container,
    sidecar_volumes,
)
from distributed_input_operator.injection.trainers import (
    Consumer,
    Manifest,
    labels_of,
    wanted_inputs,
)
from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.tf_data_service import tf_data_service_env


def asks(pod: Manifest) -> bool:
    """Whether the pod, or the template of one, asks for the sidecar."""
    return labels_of(pod).get(names.INJECT_LABEL) == "true"


def injected(
    pod: Manifest,
    owners: Mapping[str, Manifest],
    find: Callable[[str], DistributedInput],
    image: str,
) -> dict[str, Any]:
    """The pod with its sidecar; with a note alone where it reads no input. The pod stays as it is.

    Args:
        pod: what is created, or a template: `metadata` and `spec`.
        owners: what runs it, by kind; see `consumers.consumer`.
        find: the input of a name; raises RefusedError where there is none.
        image: of the sidecar, where no input names one.

    Raises:
        RefusedError: it cannot be had; says what to change.
    """
    inputs = [find(name) for name in wanted_inputs(pod)]
    reader = consumer(pod, owners)
    made = copy.deepcopy(dict(pod))
    if reader is not None:
        _add_sidecar(made["spec"], inputs, reader, image)
        reads = {names.reads_label(one.metadata.name): "true" for one in inputs}
        made["metadata"]["labels"] = {**labels_of(pod), **reads}
    notes = made["metadata"].get("annotations") or {}
    note = {names.INJECTED_ANNOTATION: _note(inputs, reader)}
    made["metadata"]["annotations"] = {**notes, **note}
    return made


def patch(before: Manifest, after: Manifest) -> list[dict[str, Any]]:
    """The JSON patch (RFC 6902) from a pod to the pod with its sidecar; empty where they are equal.

    It replaces whole fields of metadata and spec: the API server applies it to the very object
    that it sent.
    """
    return [
        {"op": "add", "path": f"/{part}/{key}", "value": value}
        for part in ("metadata", "spec")
        for key, value in after[part].items()
        if before[part].get(key) != value
    ]


def warnings(pod: Manifest, find: Callable[[str], DistributedInput]) -> list[str]:
    """What will not work, for `kubectl` to show: none of it is certain enough to refuse the pod.

    `find`: as of `injected`. Raises RefusedError.
    """
    spec = pod["spec"]
    if not spec.get("hostNetwork"):
        return []
    found = []
    if spec.get("dnsPolicy", "ClusterFirst") in ("ClusterFirst", "Default"):
        found.append(
            "spec.hostNetwork: the sidecar will not find its dispatcher by name: set "
            "spec.dnsPolicy: ClusterFirstWithHostNet"
        )
    closed = [name for name in wanted_inputs(pod) if find(name).spec.network_policy]
    if closed:
        found.append(
            "spec.hostNetwork: where NetworkPolicies are enforced, the sidecar is kept out, for "
            "its address is the node's: set spec.networkPolicy: false of DistributedInput "
            f"{', '.join(closed)}"
        )
    return found


def _add_sidecar(
    spec: dict[str, Any], inputs: Sequence[DistributedInput], reader: Consumer, image: str
) -> None:
    user = names.USER_ID if (spec.get("securityContext") or {}).get("runAsUser") == 0 else None
    sidecar = sidecar_container(inputs, image, user, free_port({"spec": spec}))
    sidecar["env"] = consumer_env(reader)
    spec["initContainers"] = _with(spec.get("initContainers"), sidecar)
    for volume in sidecar_volumes(inputs):
        spec["volumes"] = _with(spec.get("volumes"), volume)
    env = [
        {"name": names.DIR_ENV, "value": names.RUN_DIR},
        {"name": names.NAMES_ENV, "value": ",".join(one.metadata.name for one in inputs)},
        *consumer_env(reader),
        *tf_data_service_env(inputs),
    ]
    for container in spec["containers"]:
        container["volumeMounts"] = _with(container.get("volumeMounts"), RUN_MOUNT)
        for one in env:
            container["env"] = _with(container.get("env"), one)


def _with(found: Sequence[Mapping[str, Any]] | None, wanted: Mapping[str, Any]) -> list[Any]:
    """A list of named things with `wanted` in it; as it is where it has everything of that."""
    made = list(found or ())
    key = "mountPath" if "mountPath" in wanted else "name"
    for place, one in enumerate(made):
        if one.get(key) == wanted[key]:
            made[place] = one if contains(one, wanted) else copy.deepcopy(dict(wanted))
            return made
    return [*made, copy.deepcopy(dict(wanted))]


def _note(inputs: Sequence[DistributedInput], reader: Consumer | None) -> str:
    if reader is None:
        return json.dumps({"inputs": [], "because": "TF_CONFIG's task reads no input"})
    served = [one.metadata.name for one in inputs]
    return json.dumps({"inputs": served, "consumers": reader.count, "knownBy": reader.known_by})
