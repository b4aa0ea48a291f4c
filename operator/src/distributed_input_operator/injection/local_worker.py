"""The worker in a trainer's pod, which uses the CPUs that the trainer leaves idle."""

from __future__ import annotations

from typing import Any

from distributed_input.api import environment
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.injection.sidecar import NO_TOKEN_MOUNT, POD_UID
from distributed_input_operator.injection.trainer_pod import Manifest, RefusedError
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.worker import local_worker_container

_SECURITY_FIELDS = (
    "appArmorProfile",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "windowsOptions",
)
"""Fields of a pod's security context that a container has too."""
_NO_ACCELERATORS = [
    {"name": "CUDA_VISIBLE_DEVICES", "value": "-1"},
    {"name": "HIP_VISIBLE_DEVICES", "value": "-1"},
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
]
"""Some container runtimes show all GPUs of the node to every container. TensorFlow would allocate
their memory, which the trainer needs."""


def local_worker(
    pod: Manifest, one: DistributedInput, settings: Settings, user: int | None, port: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the container of the worker, as a native sidecar, and its volumes.

    Without a `user`, it runs as the user of the pod or the image.

    Raises:
        RefusedError: the pod has another ServiceAccount than the workers.
    """
    _check_service_account(pod, one)
    reference = f"$({environment.POD_UID_ENV})"
    container, worker_pod = local_worker_container(one, settings, reference, port)
    renamed, volumes = {}, []
    for volume in worker_pod.get("volumes", ()):
        name = _volume_name(one.metadata.name, volume["name"])
        renamed[volume["name"]] = name
        volumes.append({**volume, "name": name})
    mounts = [
        {**mount, "name": renamed.get(mount["name"], mount["name"])}
        for mount in container.get("volumeMounts", ())
    ]
    used = {mount["name"] for mount in mounts}
    whole_pod = worker_pod.get("securityContext") or {}
    security = {key: whole_pod[key] for key in _SECURITY_FIELDS if key in whole_pod}
    result = {
        **container,
        "restartPolicy": "Always",
        # Kubernetes expands references only to variables that come before.
        "env": [POD_UID, *_NO_ACCELERATORS, *container.get("env", ())],
        "volumeMounts": [*mounts, NO_TOKEN_MOUNT],
        "securityContext": {
            **({} if user is None else {"runAsUser": user}),
            **security,
            **(container.get("securityContext") or {}),
        },
    }
    return result, [volume for volume in volumes if volume["name"] in used]


def _volume_name(input_name: str, volume: str) -> str:
    """Return a name that no other volume of the trainer's pod has, with at most 63 characters."""
    return f"{volume[:46]}-{digest([input_name, volume])}"


def _check_service_account(pod: Manifest, one: DistributedInput) -> None:
    required = one.spec.workers.pod.service_account_name
    found = pod["spec"].get("serviceAccountName") or "default"
    if required and required != found:
        raise RefusedError(
            "spec.workers.template.spec.serviceAccountName of DistributedInput "
            f"{one.metadata.name} is {required!r}, but this pod has the ServiceAccount {found!r}, "
            f"which its worker would use too: set the pod's "
            f"spec.serviceAccountName to {required}, or remove spec.workers.local"
        )
