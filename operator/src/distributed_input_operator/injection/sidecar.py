"""The sidecar's container, and the volumes it shares with the trainer or reads alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import MIB, quantity, quantity_bytes
from distributed_input.api.resource.sections.processes import SIDECAR_BYTES
from distributed_input_operator.injection.trainers import Consumer, Manifest, RefusedError
from distributed_input_operator.objects.resources import container_resources

RUN_VOLUME = "distributed-input"
MOUNTS_VOLUME = "distributed-input-config"
_EMPTY_VOLUME = "distributed-input-no-token"
_TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - the folder's name
_PEAK_BYTES = 512 * MIB
"""What it may take: wide rows, and a dataset on its way from the trainer."""
_DATASET_BYTES = 256 * MIB
"""Room in the shared volume for a dataset that the trainer brings."""
_GRACE_SECONDS = 5

RUN_MOUNT = {"name": RUN_VOLUME, "mountPath": names.RUN_DIR}


def sidecar_container(
    inputs: Sequence[DistributedInput], image: str, user: int | None, port: int
) -> dict[str, Any]:
    """A native sidecar: an init container that goes on beside the others, and ends after them.

    Args:
        inputs: what it serves, of one namespace.
        image: where no input names one.
        user: to run as; None: the pod's or the image's.
        port: of its metrics and health page.

    Raises:
        RefusedError: one sidecar cannot be what all the inputs say.
    """
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    probe = {"httpGet": {"path": "/healthz", "port": port}}
    return {
        "name": names.SIDECAR_CONTAINER,
        "image": _image(inputs, image),
        "restartPolicy": "Always",
        "command": ["python", "-m", "distributed_input.sidecar"],
        "args": [*_args(inputs), "--metrics-listen", f":{port}"],
        "ports": [{"name": names.SIDECAR_METRICS_PORT_NAME, "containerPort": port}],
        "resources": _resources(inputs),
        "securityContext": security if user is None else {**security, "runAsUser": user},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The trainer starts once it serves; that takes no dispatcher and no worker.
        "startupProbe": {**probe, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 120},
        "livenessProbe": {**probe, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "volumeMounts": [
            RUN_MOUNT,
            {"name": MOUNTS_VOLUME, "mountPath": names.MOUNTS_DIR, "readOnly": True},
            # In place of the trainer's token for the API server, which is none of ours; and a pod
            # to which nothing is added need not be asked about again.
            {"name": _EMPTY_VOLUME, "mountPath": _TOKEN_DIR, "readOnly": True},
        ],
    }


def consumer_env(consumer: Consumer) -> list[dict[str, Any]]:
    """Which trainer it is, of how many; the sidecar's flags refer to these."""
    return [
        {"name": names.CONSUMER_INDEX_ENV, **consumer.index},
        {"name": names.CONSUMER_COUNT_ENV, "value": str(consumer.count)},
    ]


def sidecar_volumes(inputs: Sequence[DistributedInput]) -> list[dict[str, Any]]:
    """The memory that is shared with the trainer; and what only the sidecar reads, tokens among it.

    The shared volume holds two rings for each input: a sidecar that was restarted fills a new one
    while the trainer still holds batches in the old.
    """
    size = sum(2 * _buffer(one) for one in inputs)
    size += _DATASET_BYTES * any(one.spec.dataset.traced for one in inputs)
    shared = {"medium": "Memory", "sizeLimit": _bytes_text(size)}
    sources: list[dict[str, Any]] = []
    for name in (one.metadata.name for one in inputs):
        config = {"key": names.CONFIG_KEY, "path": f"{_below(names.CONFIG_DIR)}/{name}.json"}
        token = {"key": names.TOKEN_KEY, "path": f"{_below(names.TOKENS_DIR)}/{name}"}
        sources.append({"configMap": {"name": names.shared(name), "items": [config]}})
        sources.append({"secret": {"name": names.shared(name), "items": [token]}})
    return [
        {"name": RUN_VOLUME, "emptyDir": shared},
        {"name": MOUNTS_VOLUME, "projected": {"sources": sources}},
        {"name": _EMPTY_VOLUME, "emptyDir": {}},
    ]


def free_port(pod: Manifest) -> int:
    """A port for the sidecar that no container of the pod says it uses."""
    used = {
        port.get("containerPort")
        for part in ("containers", "initContainers")
        for container in pod["spec"].get(part) or ()
        if container["name"] != names.SIDECAR_CONTAINER
        for port in container.get("ports") or ()
    }
    return next(port for port in range(names.METRICS_PORT, 1 << 16) if port not in used)


def _args(inputs: Sequence[DistributedInput]) -> list[str]:
    args = []
    for one in inputs:
        name = one.metadata.name
        config = f"{names.CONFIG_DIR}/{name}.json"
        args += ["--config", config, "--dispatcher", f"{name}={names.address(name)}"]
    return [
        *args,
        *("--dir", names.RUN_DIR, "--token-file", names.TOKENS_DIR),
        # Kubernetes writes the values in.
        *("--consumer-index", f"$({names.CONSUMER_INDEX_ENV})"),
        *("--consumer-count", f"$({names.CONSUMER_COUNT_ENV})"),
        *("--grace-seconds", str(_GRACE_SECONDS)),
    ]


def _image(inputs: Sequence[DistributedInput], default: str) -> str:
    named = {one.spec.sidecar.image: one.metadata.name for one in inputs if one.spec.sidecar.image}
    if len(named) > 1:
        wishes = " and ".join(f"{image} ({name})" for image, name in sorted(named.items()))
        raise RefusedError(
            f"one sidecar serves all inputs of a pod, and spec.sidecar.image names {wishes}: make "
            "them the same"
        )
    return next(iter(named), default)


def _resources(inputs: Sequence[DistributedInput]) -> dict[str, dict[str, str]]:
    """The sum of what the inputs ask for; a limit only where each of them has one."""
    each = [_own_resources(one) for one in inputs]
    made: dict[str, dict[str, str]] = {}
    for kind in ("requests", "limits"):
        given = [one.get(kind, {}) for one in each]
        for what in sorted({key for one in given for key in one}):
            if kind == "limits" and not all(what in one for one in given):
                continue
            total = sum((quantity(one[what]) for one in given if what in one), Decimal(0))
            made.setdefault(kind, {})[what] = _text(what, total)
    return made


def _own_resources(one: DistributedInput) -> dict[str, dict[str, str]]:
    """With the ring, for its pages count as the sidecar's, which touches them first.

    Memory always has a limit: a namespace's default for limits knows of no ring.
    """
    ring, wanted = _buffer(one), one.spec.sidecar.resources
    defaults = {"cpu": "250m", "memory": str(ring + SIDECAR_BYTES)}
    made = container_resources(wanted, defaults)
    limits, asked = made.setdefault("limits", {}), made.get("requests", {}).get("memory", "0")
    limits.setdefault("memory", str(max(ring + _PEAK_BYTES, int(quantity(asked)))))
    made["requests"] = {**limits, **made.get("requests", {})}  # as Kubernetes would; sums need it
    return made


def _buffer(one: DistributedInput) -> int:
    return quantity_bytes(one.spec.sidecar.buffer)


def _below(folder: str) -> str:
    return folder.removeprefix(f"{names.MOUNTS_DIR}/")


def _text(what: str, value: Decimal) -> str:
    """A quantity as the API server would write it."""
    if value != value.to_integral_value():
        return f"{int((value * 1000).to_integral_value())}m"
    return _bytes_text(int(value)) if what == "memory" else str(int(value))


def _bytes_text(size: int) -> str:
    for suffix, unit in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size % unit == 0 and size:
            return f"{size // unit}{suffix}"
    return str(size)
