"""Injection of the sidecar, and of workers, into a pod or a pod template.

Injection is idempotent: what is already present stays. The API server may call the webhook again
after others have changed the pod, and a pod may have been injected offline before.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributed_input.api import environment, files, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.merge import by_key
from distributed_input.api.resource.topology import trainers_problem
from distributed_input_operator.injection.local_worker import local_worker
from distributed_input_operator.injection.owners import Owners
from distributed_input_operator.injection.ports import free_ports
from distributed_input_operator.injection.rank import trainer_rank
from distributed_input_operator.injection.sidecar import (
    RUN_MOUNT,
    rank_env,
    sidecar_container,
    sidecar_volumes,
)
from distributed_input_operator.injection.trainer_pod import (
    Manifest,
    RefusedError,
    TrainerRank,
    labels_of,
    requested_inputs,
)
from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.tf_data_service import tf_data_service_env

FindInput = Callable[[str], DistributedInput]
"""Returns the input with a name. Raises RefusedError if there is none."""


def requests_sidecar(pod: Manifest) -> bool:
    """Whether a pod or a pod template has the label that requests the sidecar."""
    return labels_of(pod).get(names.INJECT_LABEL) == "true"


def inject(pod: Manifest, owners: Owners, find: FindInput, settings: Settings) -> dict[str, Any]:
    """Return a copy of a pod with the sidecar.

    A pod that reads no input, such as TF_CONFIG's ps, gets only an annotation. `pod` may be a pod
    template.

    Raises:
        RefusedError: injection is not possible. The message says what to change.
    """
    inputs = [find(name) for name in requested_inputs(pod)]
    rank = trainer_rank(pod, owners)
    result = copy.deepcopy(dict(pod))
    if rank is not None:
        _check_trainers(inputs, rank)
        _add_containers(result, inputs, rank, settings, owners)
        reads = {names.reads_label(one.metadata.name): "true" for one in inputs}
        result["metadata"]["labels"] = {**labels_of(pod), **reads}
    result["metadata"]["annotations"] = {
        **(result["metadata"].get("annotations") or {}),
        names.INJECTED_ANNOTATION: _report(inputs, rank),
    }
    return result


def json_patch(before: Manifest, after: Manifest) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) between a pod and its injected copy.

    The patch is empty if both are equal. It replaces whole fields of metadata and spec, which is
    safe because the API server applies it to exactly the object that it sent.
    """
    return [
        {"op": "add", "path": f"/{part}/{key}", "value": value}
        for part in ("metadata", "spec")
        for key, value in after[part].items()
        if before[part].get(key) != value
    ]


def host_network_warnings(pod: Manifest, find: FindInput) -> list[str]:
    """Return warnings about a pod on the host's network, which kubectl shows to the user.

    The problems depend on the cluster, so they are not a reason to refuse the pod.

    Raises:
        RefusedError: from `find`.
    """
    spec = pod["spec"]
    if not spec.get("hostNetwork"):
        return []
    found = []
    if "name" not in pod["metadata"] and "generateName" not in pod["metadata"]:
        found.append(
            "spec.hostNetwork: the sidecars of all pods of this template have the same port, so "
            "that each node runs only one of them: use the webhook, which gives each pod its own"
        )
    if spec.get("dnsPolicy", "ClusterFirst") in ("ClusterFirst", "Default"):
        found.append(
            "spec.hostNetwork: the sidecar cannot resolve the name of its dispatcher: set "
            "spec.dnsPolicy: ClusterFirstWithHostNet"
        )
    restricted = [name for name in requested_inputs(pod) if find(name).spec.is_restricted]
    if restricted:
        found.append(
            "spec.hostNetwork: if the cluster enforces NetworkPolicies, they block the sidecar, "
            "because it uses the node's address: set spec.networkPolicy: Open in DistributedInput "
            f"{', '.join(restricted)}"
        )
    return found


def _check_trainers(inputs: Sequence[DistributedInput], rank: TrainerRank) -> None:
    """Raise RefusedError if the trainers cannot share the partitions that an input sets."""
    for one in inputs:
        # The trainer may pass a batch size of its own.
        problem = trainers_problem(one.spec, rank.consumers, batch_size_is_final=False)
        if problem is not None:
            raise RefusedError(f"input {one.metadata.name}: {problem}")


def _add_containers(
    pod: dict[str, Any],
    inputs: Sequence[DistributedInput],
    rank: TrainerRank,
    settings: Settings,
    owners: Owners,
) -> None:
    spec = pod["spec"]
    runs_as_root = (spec.get("securityContext") or {}).get("runAsUser") == 0
    user = names.USER_ID if runs_as_root else None
    local = [one for one in inputs if one.spec.workers.local]
    added = [names.SIDECAR_CONTAINER, *(names.local_worker(one.metadata.name) for one in local)]
    port, *worker_ports = free_ports(pod, added, rank, owners)
    volumes = sidecar_volumes(inputs, rank.ranks)
    for one, worker_port in zip(local, worker_ports, strict=True):
        worker, more = local_worker(pod, one, settings, user, worker_port)
        _add(spec, "initContainers", worker)
        volumes += more
    sidecar = sidecar_container(inputs, settings.sidecar_image, user, port, rank)
    _add(spec, "initContainers", sidecar)
    for volume in volumes:
        _add(spec, "volumes", volume)
    env = [
        {"name": environment.DIR_ENV, "value": files.RUN_DIR},
        {"name": environment.NAMES_ENV, "value": ",".join(one.metadata.name for one in inputs)},
        *rank_env(rank),
        *tf_data_service_env(inputs),
    ]
    for container in spec["containers"]:
        _add(container, "volumeMounts", RUN_MOUNT)
        for variable in env:
            _add(container, "env", variable)


def _add(target: dict[str, Any], field: str, added: Mapping[str, Any]) -> None:
    """Add an object to the list in a field, or replace those with the same keys.

    An object with the same keys stays if it already has all fields of `added`.
    """
    items = list(target.get(field) or ())
    keys = (by_key([added], field) or {}).keys()
    same = [one for one in items if (by_key([one], field) or {}).keys() == keys]
    if len(same) == 1 and contains(same[0], added, field):
        return
    place = items.index(same[0]) if same else len(items)
    others = [one for one in items if one not in same]
    target[field] = [*others[:place], copy.deepcopy(dict(added)), *others[place:]]


def _report(inputs: Sequence[DistributedInput], rank: TrainerRank | None) -> str:
    """Return the annotation that describes what was injected."""
    if rank is None:
        return json.dumps({"inputs": [], "because": "its task reads no input"})
    served = [one.metadata.name for one in inputs]
    each = rank.ranks if rank.span == 1 else rank.ranks_per_trainer
    ranks = {"ranksPerTrainer": each} if each != 1 else {}
    return json.dumps({"inputs": served, "consumers": rank.count, **ranks, "knownBy": rank.source})
